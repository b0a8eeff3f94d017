#include "data/mix.h"
#include "headpond/sampler.h"

namespace headpond {

SampleRandom::SampleRandom(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample)
    : state_(mixed_key(KeyPurpose::sample_random, seed, epoch, sample)) {}

std::uint64_t SampleRandom::next() { return mix(state_ += kGoldenGamma); }

double SampleRandom::uniform(double low, double high) {
  constexpr double kUnit = 1.0 / 9007199254740992.0;  // 2^-53
  const double value = low + (high - low) * (static_cast<double>(next() >> 11) * kUnit);
  // The sum may round up to `high`, which is outside.
  return value < high ? value : low;
}

// Lemire, "Fast random integer generation in an interval" (2019): the upper word
// of a product, rejecting the few values that would make some results likelier.
std::uint64_t SampleRandom::below(std::uint64_t bound) {
  auto product = static_cast<unsigned __int128>(next()) * bound;
  if (static_cast<std::uint64_t>(product) < bound) {
    const std::uint64_t surplus = (0 - bound) % bound;
    while (static_cast<std::uint64_t>(product) < surplus) {
      product = static_cast<unsigned __int128>(next()) * bound;
    }
  }
  return static_cast<std::uint64_t>(product >> 64);
}

}  // namespace headpond
