#include "data/permutation.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "data/mix.h"
#include "data/statistics.h"
#include "support/catch.h"

using namespace headpond;

namespace {

std::vector<std::uint64_t> images(std::uint64_t n, std::uint64_t key) {
  std::vector<std::uint64_t> out(n);
  Permutation(n, key).map(0, 1, out);
  return out;
}

bool is_permutation(std::vector<std::uint64_t> values) {
  std::sort(values.begin(), values.end());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != i) return false;
  }
  return true;
}

std::uint64_t seed_key(std::uint64_t seed, std::uint64_t epoch = 0) {
  return mixed_key(KeyPurpose::full_order, seed, epoch, 0);
}

}  // namespace

TEST_CASE("Permutation: a bijection for every n to 1030 and around each power of two") {
  std::vector<std::uint64_t> sizes(1030);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (unsigned bits = 11; bits <= 20; ++bits) {
    for (const std::uint64_t n : {(1ull << bits) - 1, 1ull << bits, (1ull << bits) + 1}) {
      sizes.push_back(n);
    }
  }
  for (const std::uint64_t n : sizes) {
    INFO("n " << n);
    REQUIRE(is_permutation(images(n, seed_key(n))));
  }
}

TEST_CASE("Permutation: single places, strides and runs of any length agree") {
  for (const std::uint64_t n : {1ull, 2ull, 3ull, 255ull, 256ull, 257ull, 1000ull, 70'000ull}) {
    const auto all = images(n, 5);
    const Permutation permutation(n, 5);
    for (const std::uint64_t stride : {1ull, 2ull, 7ull, 64ull}) {
      for (const std::uint64_t first : {0ull, 1ull, 5ull, 250ull}) {
        if (first >= n) continue;
        std::vector<std::uint64_t> some((n - 1 - first) / stride + 1);
        permutation.map(first, stride, some);
        bool same = true;
        for (std::size_t k = 0; k < some.size(); ++k) same &= some[k] == all[first + k * stride];
        CHECK(same);
      }
    }
    for (std::uint64_t place = 0; place < std::min<std::uint64_t>(n, 300); ++place) {
      REQUIRE(permutation(place) == all[place]);
    }
  }
}

// The network written down plainly, one place at a time, without any vector code.
std::uint64_t plain_image(std::uint64_t place, std::uint64_t n, std::uint64_t key) {
  unsigned bits = 2;
  while (bits < 64 && (n - 1) >> bits != 0) ++bits;
  const unsigned low_bits = bits - bits / 2;
  const unsigned high_bits = bits / 2;
  const int rounds = bits < 7 ? 32 : bits < 16 ? 12 : 6;
  const auto bits_of = [&](std::uint64_t half, int round) {
    std::uint64_t z = half ^ mix(key + static_cast<std::uint64_t>(round + 1) * kGoldenGamma);
    z *= 0xbf58476d1ce4e5b9u;
    return (z ^ (z >> 32)) * 0x94d049bb133111ebu;
  };
  do {
    std::uint64_t high = place >> low_bits;
    std::uint64_t low = place % (std::uint64_t{1} << low_bits);
    for (int round = 0; round < rounds; round += 2) {
      high ^= bits_of(low, round) >> (64 - high_bits);
      low ^= bits_of(high, round + 1) >> (64 - low_bits);
    }
    place = (high << low_bits) + low;
  } while (place >= n);
  return place;
}

TEST_CASE("Permutation: the vector loops give what the network gives written down plainly") {
  for (unsigned bits = 0; bits < 63; ++bits) {
    for (const std::uint64_t more : {0ull, 1ull, (1ull << bits) / 3}) {
      const std::uint64_t n = (std::uint64_t{1} << bits) + more;
      std::vector<std::uint64_t> out(std::min<std::uint64_t>(n, 600));
      Permutation(n, bits).map(n - out.size(), 1, out);
      for (std::size_t k = 0; k < out.size(); ++k) {
        REQUIRE(out[k] == plain_image(n - out.size() + k, n, bits));
      }
    }
  }
}

TEST_CASE("Permutation: sizes to 2^63 stay inside and do not collide on a sample of places") {
  for (const unsigned bits : {31u, 32u, 33u, 40u, 62u, 63u}) {
    for (const std::int64_t off : {-1, 0, 1}) {
      if (bits == 63 && off == 1) continue;
      const std::uint64_t n = (std::uint64_t{1} << bits) + static_cast<std::uint64_t>(off);
      const Permutation permutation(n, bits);
      std::vector<std::uint64_t> seen(4000);
      permutation.map(n - 4000, 1, seen);
      std::sort(seen.begin(), seen.end());
      CHECK(seen.back() < n);
      CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
    }
  }
}

TEST_CASE("Permutation: all permutations of a few elements are equally likely") {
  for (const std::uint64_t n : {2u, 3u, 4u, 5u, 6u}) {
    std::map<std::vector<std::uint64_t>, std::uint64_t> counts;
    std::uint64_t kinds = 1;
    for (std::uint64_t k = 2; k <= n; ++k) kinds *= k;
    for (std::uint64_t seed = 0; seed < 1000 * kinds; ++seed) ++counts[images(n, seed_key(seed))];
    std::vector<std::uint64_t> cells;
    cells.reserve(kinds);
    for (const auto& [permutation, count] : counts) cells.push_back(count);
    cells.resize(kinds);
    const double z = chi_square_z(cells);
    INFO("n " << n << " z " << z);
    CHECK(std::abs(z) < 4);
  }
}

TEST_CASE("Permutation: every place takes every value equally often over the seeds") {
  for (const std::uint64_t n :
       {7u, 8u, 10u, 16u, 17u, 32u, 33u, 64u, 100u, 128u, 129u, 256u, 300u}) {
    std::vector<std::uint64_t> counts(n * n);
    for (std::uint64_t seed = 0; seed < 100 * n; ++seed) {
      const auto values = images(n, seed_key(seed));
      for (std::size_t place = 0; place < n; ++place) ++counts[place * n + values[place]];
    }
    const double z = chi_square_z(counts, static_cast<double>((n - 1) * (n - 1)));
    INFO("n " << n << " z " << z);
    CHECK(std::abs(z) < 4);
  }
}

TEST_CASE("Permutation: distances of neighbours are uniform over the seeds, near and far") {
  for (const std::uint64_t n :
       {5u, 8u, 10u, 16u, 31u, 64u, 100u, 256u, 1000u, 1024u, 65'536u, 100'003u}) {
    for (const std::uint64_t apart : {1u, 2u, 4u, 32u, 512u}) {
      if (apart >= n) continue;
      // Distances that are many enough to be counted alone, else in bins of equal width.
      const std::uint64_t bins = std::min<std::uint64_t>(n - 1, 999);
      const std::uint64_t width = (n - 1) / bins;
      std::vector<std::uint64_t> counts(bins);
      const std::uint64_t seeds = std::max<std::uint64_t>(4, 1'000'000 / n);
      for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        const auto values = images(n, seed_key(seed, 1));
        for (std::size_t i = 0; i + apart < n; ++i) {
          const std::uint64_t distance = (values[i + apart] + n - values[i]) % n - 1;
          if (distance / width < bins) ++counts[distance / width];
        }
      }
      const double z = chi_square_z(counts);
      INFO("n " << n << " apart " << apart << " z " << z);
      CHECK(std::abs(z) < 4);
    }
  }
}

TEST_CASE(
    "Permutation: the orders of one epoch and the next, of one seed and the next, are unrelated") {
  for (const std::uint64_t n : {10u, 16u, 64u, 100u, 1000u}) {
    std::array<std::vector<std::uint64_t>, 2> counts{std::vector<std::uint64_t>(n),
                                                     std::vector<std::uint64_t>(n)};
    for (std::uint64_t seed = 0; seed < 1'000'000 / n; ++seed) {
      const auto one = images(n, seed_key(seed, 0));
      const std::array others{images(n, seed_key(seed, 1)), images(n, seed_key(seed + 1, 0))};
      for (std::size_t which = 0; which < 2; ++which) {
        for (std::size_t i = 0; i < n; ++i) ++counts[which][(others[which][i] + n - one[i]) % n];
      }
    }
    for (const auto& cells : counts) {
      const double z = chi_square_z(cells);
      INFO("n " << n << " z " << z);
      CHECK(std::abs(z) < 4);
    }
  }
}

TEST_CASE("Permutation: a batch of a large set is spread over it, and so is every rank's share") {
  constexpr std::uint64_t kBins = 64;
  for (const std::uint64_t n : {100'000u, 1'000'003u, 16'777'216u}) {
    for (const std::uint64_t stride : {1u, 8u, 256u}) {
      std::vector<std::uint64_t> values(kBins);
      std::vector<std::uint64_t> pairs(kBins * kBins);
      std::vector<std::uint64_t> remainders(8);
      for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
        std::array<std::uint64_t, 128> batch;
        Permutation(n, seed_key(seed)).map(0, stride, batch);
        for (std::size_t i = 0; i < batch.size(); ++i) {
          const std::uint64_t bin = batch[i] * kBins / n;
          ++values[bin];
          ++remainders[batch[i] % 8];
          if (i > 0) ++pairs[(batch[i - 1] * kBins / n) * kBins + bin];
        }
      }
      INFO("n " << n << " stride " << stride << " z " << chi_square_z(values) << ' '
                << chi_square_z(pairs) << ' ' << chi_square_z(remainders));
      CHECK(std::abs(chi_square_z(values)) < 4);
      CHECK(std::abs(chi_square_z(pairs)) < 4);
      CHECK(std::abs(chi_square_z(remainders)) < 4);
    }
  }
}

TEST_CASE("Permutation: as many elements stay in place as chance says, one on average") {
  for (const std::uint64_t n : {10u, 64u, 100u, 1000u, 70'000u}) {
    const std::uint64_t seeds = n < 2000 ? 4000 : 400;
    std::uint64_t fixed = 0;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      const auto values = images(n, seed_key(seed, 2));
      for (std::size_t i = 0; i < n; ++i) fixed += values[i] == i ? 1 : 0;
    }
    // Their number has mean 1 and variance 1.
    const double z = (static_cast<double>(fixed) - static_cast<double>(seeds)) /
                     std::sqrt(static_cast<double>(seeds));
    INFO("n " << n << " z " << z);
    CHECK(std::abs(z) < 4);
  }
}
