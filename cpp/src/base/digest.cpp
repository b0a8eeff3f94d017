#include "base/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#include <wmmintrin.h>
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
// x^n modulo the polynomial; as in all of this the highest power is the lowest bit.
constexpr std::uint32_t power_of_x(std::size_t n) {
  std::uint32_t power = 0x80000000u;
  for (; n > 0; --n) power = (power >> 1) ^ ((power & 1u) != 0 ? 0x82F63B78u : 0u);
  return power;
}

__attribute__((target("sse4.2"))) inline std::uint64_t crc_word(std::uint64_t crc,
                                                                const std::byte* data) {
  std::uint64_t word;
  std::memcpy(&word, data, 8);
  return _mm_crc32_u64(crc, word);
}

// Three parts at once, because an instruction that may begin in each cycle gives its result three
// cycles later. Their sums are then moved to their places: a carry-less product with x^(8n - 33),
// reduced by an instruction that brings x^32, while the product of mirrored numbers brings x.
template <std::size_t kPart>
__attribute__((target("sse4.2,pclmul"))) std::uint64_t crc_three(std::uint64_t crc,
                                                                 const std::byte*& data,
                                                                 std::size_t& size) {
  static constexpr std::uint32_t kByOne = power_of_x(8 * kPart - 33);
  static constexpr std::uint32_t kByTwo = power_of_x(16 * kPart - 33);
  for (; size >= 3 * kPart; data += 3 * kPart, size -= 3 * kPart) {
    std::uint64_t second = 0, third = 0;
    for (std::size_t at = 0; at < kPart; at += 8) {
      crc = crc_word(crc, data + at);
      second = crc_word(second, data + kPart + at);
      third = crc_word(third, data + 2 * kPart + at);
    }
    const __m128i moved =
        _mm_xor_si128(_mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(crc)),
                                           _mm_cvtsi64_si128(kByTwo), 0),
                      _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(second)),
                                           _mm_cvtsi64_si128(kByOne), 0));
    crc = third ^ _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(moved)));
  }
  return crc;
}

// 4,080 of the 4,096 bytes of a cell go in one turn.
__attribute__((target("sse4.2,pclmul"))) std::uint32_t crc_vector(std::uint32_t crc,
                                                                  const std::byte* data,
                                                                  std::size_t size) {
  std::uint64_t wide = crc_three<1360>(crc, data, size);
  wide = crc_three<168>(wide, data, size);
  for (; size >= 8; data += 8, size -= 8) wide = crc_word(wide, data);
  return crc_table_loop(static_cast<std::uint32_t>(wide), data, size);
}

bool has_vector_crc() {
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
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
  if (has_vector_crc()) return ~crc_vector(~seed, bytes.data(), bytes.size());
#endif
  return crc32c_plain(bytes, seed);
}

std::uint32_t crc32c_plain(std::span<const std::byte> bytes, std::uint32_t seed) {
  return ~crc_table_loop(~seed, bytes.data(), bytes.size());
}

}  // namespace headpond
