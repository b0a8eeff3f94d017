#pragma once

#include <cstdint>

namespace headpond {

// A bijection of 64-bit words in which every input bit moves every output bit:
// the finaliser of SplitMix64 (Stafford's variant 13).
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline constexpr std::uint64_t kGoldenGamma = 0x9e3779b97f4a7c15u;

// What a key is for: streams of different purposes never meet, whatever the seed.
enum class KeyPurpose : std::uint64_t { full_order = 1, shard_order, group_order, sample_random };

// The key of one use of (seed, epoch, item). Injective in `item` while the others
// stand still, so no two items of an epoch share a key.
constexpr std::uint64_t mixed_key(KeyPurpose purpose, std::uint64_t seed, std::uint64_t epoch,
                                  std::uint64_t item) {
  std::uint64_t key = mix(static_cast<std::uint64_t>(purpose) * kGoldenGamma);
  key = mix(key ^ seed);
  key = mix(key + epoch);
  return mix(key ^ item);
}

}  // namespace headpond
