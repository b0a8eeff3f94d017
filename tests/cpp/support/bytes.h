#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headpond {

using Bytes = std::vector<std::byte>;

// Bytes that differ at every place and between seeds, so that a read from the wrong
// offset or object shows.
inline Bytes pattern(std::size_t size, std::uint64_t seed = 0) {
  Bytes bytes(size);
  for (std::size_t at = 0; at < size; at += 8) {
    std::uint64_t x = (at / 8 + 1) * 0x9E3779B97F4A7C15ull + seed * 0xBF58476D1CE4E5B9ull;
    x ^= x >> 31;
    x *= 0x94D049BB133111EBull;
    x ^= x >> 29;
    std::memcpy(bytes.data() + at, &x, std::min<std::size_t>(8, size - at));
  }
  return bytes;
}

inline Bytes part(const Bytes& bytes, std::size_t offset, std::size_t size) {
  const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(std::min(offset, bytes.size()));
  return Bytes(first, first + static_cast<std::ptrdiff_t>(
                                  std::min(size, bytes.size() - std::min(offset, bytes.size()))));
}

inline Bytes bytes_of(std::string_view text) {
  const auto view = std::as_bytes(std::span(text));
  return Bytes(view.begin(), view.end());
}

}  // namespace headpond
