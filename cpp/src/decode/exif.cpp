#include "decode/exif.h"

#include <cstdint>
#include <cstring>
#include <optional>

namespace headpond::decode {
namespace {

// A TIFF structure, read within its bounds and in its byte order.
class Tiff {
 public:
  Tiff(std::span<const std::byte> bytes, bool little) : bytes_(bytes), little_(little) {}

  std::optional<std::uint32_t> number(std::uint64_t offset, int size) const {
    if (offset + static_cast<std::uint64_t>(size) > bytes_.size()) return std::nullopt;
    std::uint32_t value = 0;
    for (int i = 0; i < size; ++i) {
      const int at = little_ ? size - 1 - i : i;
      value = value << 8 |
              std::to_integer<std::uint32_t>(bytes_[offset + static_cast<std::uint64_t>(at)]);
    }
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  bool little_;
};

constexpr std::size_t kPrefix = 6;  // "Exif" and two zeros

}  // namespace

bool is_exif(std::span<const std::byte> segment) {
  return segment.size() >= kPrefix && std::memcmp(segment.data(), "Exif\0\0", kPrefix) == 0;
}

int exif_orientation(std::span<const std::byte> segment) {
  if (!is_exif(segment)) return 1;
  const auto bytes = segment.subspan(kPrefix);
  if (bytes.size() < 8) return 1;
  const Tiff tiff(bytes, std::memcmp(bytes.data(), "II", 2) == 0);
  const auto directory = tiff.number(4, 4);
  const auto entries = directory ? tiff.number(*directory, 2) : std::nullopt;
  if (!entries) return 1;
  for (std::uint64_t i = 0; i < *entries; ++i) {
    const std::uint64_t entry = std::uint64_t{*directory} + 2 + i * 12;
    const auto tag = tiff.number(entry, 2);
    if (!tag) return 1;
    if (*tag != 0x0112) continue;
    constexpr std::uint32_t kLong = 4;  // a SHORT by the book; some write a LONG
    const auto value = tiff.number(entry + 8, tiff.number(entry + 2, 2) == kLong ? 4 : 2);
    return value && *value >= 1 && *value <= 8 ? static_cast<int>(*value) : 1;
  }
  return 1;
}

}  // namespace headpond::decode
