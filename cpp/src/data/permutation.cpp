#include "data/permutation.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "data/mix.h"

namespace headpond {
namespace {

// Six rounds do for halves of eight bits and more. Below that a round function
// has so few values that the network needs more rounds to reach all permutations
// evenly: the statistical tests fail with four, six and sixteen.
constexpr int kRoundsWide = 6;
constexpr int kRoundsNarrow = 12;
constexpr int kRoundsTiny = 32;
constexpr unsigned kWideBits = 16;
constexpr unsigned kNarrowBits = 7;
static_assert(kRoundsTiny <= Permutation::kRoundsMax);

constexpr std::size_t kChunk = 256;

template <int kRounds>
struct Network {
  unsigned high_shift;  // 64 less the bits of the half
  unsigned low_shift;
  std::array<std::uint64_t, kRounds> keys;

  // 64 bits of which the upper ones are used: they depend on all of `half` and `key`.
  static std::uint64_t round_bits(std::uint64_t half, std::uint64_t key) {
    std::uint64_t z = (half ^ key) * 0xbf58476d1ce4e5b9u;
    z ^= z >> 32;
    return z * 0x94d049bb133111ebu;
  }

  std::uint64_t operator()(std::uint64_t x) const {
    const unsigned low_bits = 64 - low_shift;
    std::uint64_t high = x >> low_bits;
    std::uint64_t low = x & ((std::uint64_t{1} << low_bits) - 1);
    for (std::size_t r = 0; r < keys.size(); r += 2) {
      high ^= round_bits(low, keys[r]) >> high_shift;
      low ^= round_bits(high, keys[r + 1]) >> low_shift;
    }
    return high << low_bits | low;
  }
};

struct Places {
  std::uint64_t first;
  std::uint64_t stride;
  std::uint64_t n;
};

// Loops without unpredictable branches, which vectorise: all places go through
// the network once, then those that fell outside [0, n) walk on together, packed,
// fewer each time.
template <int kRounds>
[[gnu::always_inline]] inline void map_chunk(const Network<kRounds>& network, const Places& places,
                                             std::span<std::uint64_t> out) {
  std::array<std::uint64_t, kChunk> walkers;
  std::array<std::uint16_t, kChunk> slots;
  for (std::size_t k = 0; k < out.size(); ++k) {
    out[k] = network(places.first + k * places.stride);
  }
  std::size_t count = 0;
  for (std::size_t k = 0; k < out.size(); ++k) {
    walkers[count] = out[k];
    slots[count] = static_cast<std::uint16_t>(k);
    count += out[k] >= places.n ? 1 : 0;
  }
  while (count > 0) {
    for (std::size_t i = 0; i < count; ++i) walkers[i] = network(walkers[i]);
    std::size_t left = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t value = walkers[i];
      const std::uint16_t slot = slots[i];
      out[slot] = value;
      walkers[left] = value;
      slots[left] = slot;
      left += value >= places.n ? 1 : 0;
    }
    count = left;
  }
}

template <int kRounds>
[[gnu::always_inline]] inline void map_all(const Network<kRounds>& shared, Places places,
                                           std::span<std::uint64_t> out) {
  // A copy that `out` cannot alias stays in registers.
  const Network<kRounds> network = shared;
  while (!out.empty()) {
    const auto chunk = out.first(std::min(kChunk, out.size()));
    map_chunk(network, places, chunk);
    places.first += chunk.size() * places.stride;
    out = out.subspan(chunk.size());
  }
}

#if defined(__x86_64__)
// 64-bit products eight at a time: three times as fast, the same integers.
template <int kRounds>
[[gnu::target("avx512f,avx512dq")]] void map_avx512(const Network<kRounds>& network,
                                                    const Places& places,
                                                    std::span<std::uint64_t> out) {
  map_all(network, places, out);
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0;
}
#endif

template <int kRounds>
void map_dispatched(const Network<kRounds>& network, const Places& places,
                    std::span<std::uint64_t> out) {
#if defined(__x86_64__)
  if (has_avx512()) return map_avx512(network, places, out);
#endif
  map_all(network, places, out);
}

}  // namespace

Permutation::Permutation(std::uint64_t n, std::uint64_t key) : n_(n) {
  const unsigned bits = std::max(2u, static_cast<unsigned>(std::bit_width(n - 1)));
  high_bits_ = bits / 2;
  low_bits_ = bits - high_bits_;
  rounds_ = bits >= kWideBits ? kRoundsWide : bits >= kNarrowBits ? kRoundsNarrow : kRoundsTiny;
  for (std::size_t r = 0; r < static_cast<std::size_t>(rounds_); ++r) {
    keys_[r] = mix(key += kGoldenGamma);
  }
}

void Permutation::map(std::uint64_t first, std::uint64_t stride,
                      std::span<std::uint64_t> out) const {
  const auto run = [&]<int kRounds>(std::integral_constant<int, kRounds>) {
    Network<kRounds> network{64 - high_bits_, 64 - low_bits_, {}};
    std::copy_n(keys_.begin(), kRounds, network.keys.begin());
    map_dispatched(network, {first, stride, n_}, out);
  };
  if (rounds_ == kRoundsWide) return run(std::integral_constant<int, kRoundsWide>{});
  if (rounds_ == kRoundsNarrow) return run(std::integral_constant<int, kRoundsNarrow>{});
  run(std::integral_constant<int, kRoundsTiny>{});
}

std::uint64_t Permutation::operator()(std::uint64_t place) const {
  std::uint64_t image = 0;
  map(place, 0, {&image, 1});
  return image;
}

}  // namespace headpond
