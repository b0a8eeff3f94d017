#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace headpond {

// Bytes [start, stop) of an object. A value; start <= stop.
struct ByteRange {
  std::uint64_t start = 0;
  std::uint64_t stop = 0;

  std::uint64_t size() const { return stop - start; }
  bool contains(const ByteRange& other) const { return start <= other.start && other.stop <= stop; }
  auto operator<=>(const ByteRange&) const = default;
};

inline std::string to_string(const ByteRange& range) {
  return "[" + std::to_string(range.start) + ", " + std::to_string(range.stop) + ")";
}

}  // namespace headpond

template <>
struct std::hash<headpond::ByteRange> {
  std::size_t operator()(const headpond::ByteRange& range) const noexcept {
    return std::hash<std::uint64_t>()(range.start * 0x9E3779B97F4A7C15ull ^ range.stop);
  }
};
