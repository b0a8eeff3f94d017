#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "data/statistics.h"
#include "headpond/sampler.h"
#include "support/catch.h"

using namespace headpond;

TEST_CASE("SampleRandom: golden vectors") {
  const auto draws = [](std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample) {
    SampleRandom random(seed, epoch, sample);
    return std::array{random.next(), random.next(), random.next()};
  };
  CHECK(draws(0, 0, 0) == std::array<std::uint64_t, 3>{0x389d8c1ffa13dae2u, 0x2366200c35ba4c0cu,
                                                       0x88294c646cdcdc90u});
  CHECK(draws(0, 0, 1) ==
        std::array<std::uint64_t, 3>{0xddfe1ea124468993u, 0xc4f9dce3381f6d8fu, 0x63c21e8de96d1b3u});
  CHECK(draws(0, 1, 0) ==
        std::array<std::uint64_t, 3>{0x8b9603b6f0c4d268u, 0xe95c02a8568817a5u, 0xd8521ed84c30a07u});
  CHECK(draws(1, 0, 0) == std::array<std::uint64_t, 3>{0x14efa19cdb81bb7eu, 0x5bc0ac174ac9fcfdu,
                                                       0xf685c4dbf1d46c70u});
  CHECK(draws(7, 3, 123456789) == std::array<std::uint64_t, 3>{0xdca2ecd74d1d81dau,
                                                               0xe9040e2298ca0a8eu,
                                                               0xec36be165112e7afu});
  CHECK(draws(~0ull, ~0ull, ~0ull) == std::array<std::uint64_t, 3>{0xd03bd56c52098cc2u,
                                                                   0x5e2fea2c5d5f9627u,
                                                                   0xafc4bfd4732d5d35u});
  SampleRandom random(1, 2, 3);
  CHECK(random.uniform(0, 1) == 0x1.5c6846c05d148p-2);
  CHECK(random.uniform(-3, 5) == 0x1.6d238b8dc9ff8p+0);
  CHECK(random.below(1000) == 376);
}

TEST_CASE("SampleRandom: a stream is a function of seed, epoch and sample, and no two are alike") {
  std::set<std::uint64_t> firsts;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::uint64_t epoch = 0; epoch < 10; ++epoch) {
      for (std::uint64_t sample = 0; sample < 1000; ++sample) {
        SampleRandom one(seed, epoch, sample);
        SampleRandom other(seed, epoch, sample);
        const std::uint64_t first = one.next();
        REQUIRE(first == other.next());
        REQUIRE(one.next() != first);
        firsts.insert(first);
      }
    }
  }
  CHECK(firsts.size() == 100'000);
}

TEST_CASE("SampleRandom: uniform is uniform, within one stream and over first draws") {
  std::vector<std::uint64_t> within(1000);
  std::vector<std::uint64_t> over(1000);
  SampleRandom stream(1, 2, 3);
  for (std::uint64_t sample = 0; sample < 1'000'000; ++sample) {
    ++within[static_cast<std::size_t>(stream.uniform(0, 1000))];
    ++over[static_cast<std::size_t>(SampleRandom(1, 2, sample).uniform(0, 1000))];
  }
  CHECK(std::abs(chi_square_z(within)) < 4);
  CHECK(std::abs(chi_square_z(over)) < 4);
}

TEST_CASE("SampleRandom: neighbours in sample, epoch, seed and draw are independent") {
  constexpr std::size_t kBins = 32;
  std::array<std::vector<std::uint64_t>, 4> pairs;
  for (auto& cells : pairs) cells.resize(kBins * kBins);
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    SampleRandom here(7, 3, i);
    const std::uint64_t bin = here.below(kBins);
    const std::array<std::uint64_t, 4> others{
        SampleRandom(7, 3, i + 1).below(kBins), SampleRandom(7, 4, i).below(kBins),
        SampleRandom(8, 3, i).below(kBins), here.below(kBins)};
    for (std::size_t k = 0; k < pairs.size(); ++k) ++pairs[k][bin * kBins + others[k]];
  }
  for (const auto& cells : pairs) CHECK(std::abs(chi_square_z(cells)) < 4);
}

TEST_CASE("SampleRandom: each bit of neighbouring streams differs half of the time") {
  std::array<int, 64> differ{};
  constexpr int kRounds = 40'000;
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    const std::uint64_t changed = SampleRandom(0, 0, i).next() ^ SampleRandom(0, 0, i ^ 1).next();
    for (std::size_t bit = 0; bit < 64; ++bit) differ[bit] += (changed >> bit & 1) != 0 ? 1 : 0;
  }
  // Pairs are counted twice: 20,000 independent ones.
  for (const int count : differ) CHECK(std::abs(count - kRounds / 2) < 4 * 141);
}

TEST_CASE("SampleRandom: below is unbiased and stays below, also near the end of 64 bits") {
  for (const std::uint64_t bound : {1ull, 2ull, 3ull, 7ull, 100ull}) {
    std::vector<std::uint64_t> counts(bound);
    SampleRandom random(1, 1, bound);
    for (int i = 0; i < 100'000; ++i) ++counts[random.below(bound)];
    if (bound > 1) CHECK(std::abs(chi_square_z(counts)) < 4);
  }
  // A product without rejection would give a third of the values twice as often.
  const std::uint64_t bound = (std::uint64_t{1} << 63) + (std::uint64_t{1} << 62);
  std::vector<std::uint64_t> thirds(3);
  SampleRandom random(1, 1, 0);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t value = random.below(bound);
    REQUIRE(value < bound);
    ++thirds[value % 3];
  }
  CHECK(std::abs(chi_square_z(thirds)) < 4);
}

TEST_CASE("SampleRandom: uniform never returns its upper end") {
  SampleRandom random(3, 3, 3);
  const double low = 1.0;
  const double high = std::nextafter(1.0, 2.0);
  for (int i = 0; i < 1000; ++i) REQUIRE(random.uniform(low, high) == low);
  const double big = 9007199254740992.0;  // neighbours lie 2 apart here
  for (int i = 0; i < 1000; ++i) {
    const double value = random.uniform(big, big + 4);
    REQUIRE(value >= big);
    REQUIRE(value < big + 4);
  }
  CHECK(random.uniform(5, 5) == 5);
}
