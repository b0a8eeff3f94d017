#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace headpond {

// A 128-bit digest (XXH3-128): identity, not security. Printed as 32 hex digits.
struct Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  std::string hex() const;
  auto operator<=>(const Digest&) const = default;
};

}  // namespace headpond

template <>
struct std::hash<headpond::Digest> {
  std::size_t operator()(const headpond::Digest& digest) const noexcept {
    return static_cast<std::size_t>(digest.low);  // already mixed
  }
};
