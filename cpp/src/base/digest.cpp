#include "base/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace headpond {
namespace {

Digest from_xxh(XXH128_hash_t hash) { return {hash.high64, hash.low64}; }

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82F63B78u : 0u);
    table[i] = crc;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

std::uint32_t crc_table_loop(std::uint32_t crc, const std::byte* data, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    crc = kCrcTable[(crc ^ std::to_integer<std::uint32_t>(data[i])) & 0xFFu] ^ (crc >> 8);
  }
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc_sse42(std::uint32_t crc, const std::byte* data,
                                                          std::size_t size) {
  std::uint64_t wide = crc;
  for (; size >= 8; data += 8, size -= 8) {
    std::uint64_t word;
    std::memcpy(&word, data, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  return crc_table_loop(static_cast<std::uint32_t>(wide), data, size);
}
#endif

}  // namespace

std::string Digest::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint64_t half : {high, low}) {
    for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[(half >> shift) & 15u];
  }
  return text;
}

Digest digest(std::span<const std::byte> bytes) {
  return from_xxh(XXH3_128bits(bytes.data(), bytes.size()));
}
Digest digest(std::string_view text) { return from_xxh(XXH3_128bits(text.data(), text.size())); }

struct DigestBuilder::State {
  XXH3_state_t xxh;
};

DigestBuilder::DigestBuilder() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh);
}
DigestBuilder::~DigestBuilder() = default;

DigestBuilder& DigestBuilder::add(std::string_view text) {
  add(static_cast<std::uint64_t>(text.size()));
  XXH3_128bits_update(&state_->xxh, text.data(), text.size());
  return *this;
}

DigestBuilder& DigestBuilder::add(std::uint64_t number) {
  std::array<unsigned char, 8> bytes;
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(number >> (8 * i));
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
  return *this;
}

Digest DigestBuilder::finish() const { return from_xxh(XXH3_128bits_digest(&state_->xxh)); }

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~crc_sse42(~seed, bytes.data(), bytes.size());
#endif
  return ~crc_table_loop(~seed, bytes.data(), bytes.size());
}

}  // namespace headpond
