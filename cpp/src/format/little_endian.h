#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace headpond {

static_assert(std::endian::native == std::endian::little, "on-disk integers are read as they lie");

// Unaligned; the caller has checked that sizeof(T) bytes lie at `offset`.
template <class T>
T read_le(std::span<const std::byte> bytes, std::size_t offset = 0) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <class T>
void write_le(std::span<std::byte> bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

inline void append(std::vector<std::byte>& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

inline void pad_to_8(std::vector<std::byte>& bytes) {
  bytes.resize((bytes.size() + 7) & ~std::size_t{7});
}

// A column of fixed-width integers inside an image, read without alignment.
template <class T>
class Column {
 public:
  Column() = default;
  explicit Column(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::size_t size() const { return bytes_.size() / sizeof(T); }
  T operator[](std::size_t index) const { return read_le<T>(bytes_, index * sizeof(T)); }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace headpond
