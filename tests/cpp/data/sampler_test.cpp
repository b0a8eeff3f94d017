#include "headpond/sampler.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "data/statistics.h"
#include "headpond/steps.h"
#include "support/catch.h"

using namespace headpond;

namespace {

using Indices = std::vector<std::uint64_t>;

Indices order_of(const Sampler& sampler, std::uint64_t epoch) {
  Indices out(sampler.size());
  sampler.order(epoch)->indices(0, 1, out);
  return out;
}

bool is_permutation(Indices values) {
  std::sort(values.begin(), values.end());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != i) return false;
  }
  return true;
}

// The shard of every sample.
Indices shards_of(const Indices& counts) {
  Indices out;
  for (std::size_t shard = 0; shard < counts.size(); ++shard) {
    out.insert(out.end(), counts[shard], shard);
  }
  return out;
}

// Shard counts of many shapes: equal, uneven, with empty ones at every place.
std::vector<Indices> shard_shapes() {
  std::vector<Indices> shapes{
      {5},      {0},      {0, 0, 3}, {3, 0, 0}, {0, 4, 0, 0, 2}, {9, 9, 9, 4},        {1, 1, 1},
      {100, 1}, {1, 100}, {10, 20},  {},        {7, 0, 13},      {2, 3, 5, 7, 11, 13}};
  shapes.push_back(Indices(40, 10));
  SampleRandom random(5, 0, 0);
  for (int round = 0; round < 40; ++round) {
    Indices counts(random.below(12));
    for (auto& count : counts) count = random.below(3) == 0 ? 0 : random.below(30);
    shapes.push_back(counts);
  }
  return shapes;
}

}  // namespace

TEST_CASE("Sampler: none is the dataset's order in every epoch") {
  const Sampler sampler = Sampler::none(100);
  Indices expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(order_of(sampler, 0) == expected);
  CHECK(order_of(sampler, 9) == expected);
  CHECK(sampler.mode() == ShuffleMode::none);
}

TEST_CASE("Sampler: full gives every sample once in every epoch of every seed") {
  for (std::uint64_t n = 0; n <= 70; ++n) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
        REQUIRE(is_permutation(order_of(Sampler::full(n, seed), epoch)));
      }
    }
  }
}

TEST_CASE("Sampler: the order is a function of seed and epoch, and differs in each") {
  for (const bool full : {true, false}) {
    const auto make = [&](std::uint64_t seed) {
      return full ? Sampler::full(200, seed) : Sampler::window(Indices(20, 10), seed, 40);
    };
    std::set<Indices> orders;
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      for (std::uint64_t epoch = 0; epoch < 6; ++epoch) {
        const Indices order = order_of(make(seed), epoch);
        CHECK(order == order_of(make(seed), epoch));
        orders.insert(order);
      }
    }
    CHECK(orders.size() == 36);
  }
}

TEST_CASE("Sampler: ranks, batches and strides read the same order") {
  for (const bool full : {true, false}) {
    const Sampler sampler = full ? Sampler::full(103, 7) : Sampler::window({30, 0, 40, 33}, 7, 50);
    const Indices expected = order_of(sampler, 2);
    const auto order = sampler.order(2);
    for (const std::uint64_t world : {1ull, 2ull, 5ull, 8ull, 200ull}) {
      for (const std::uint64_t batch : {1ull, 7ull, 64ull}) {
        Indices seen(sampler.size(), ~std::uint64_t{0});
        for (std::uint64_t rank = 0; rank < world; ++rank) {
          const Steps steps{sampler.size(), batch, world, rank, false, Uneven::allow};
          for (auto step = steps.at(0); step; step = steps.at(step->next)) {
            Indices rows(step->rows);
            order->indices(step->cursor + rank, world, rows);
            for (std::size_t row = 0; row < rows.size(); ++row) {
              seen[steps.position(*step, row)] = rows[row];
            }
          }
        }
        CHECK(seen == expected);
      }
    }
  }
}

TEST_CASE("Sampler: window gives every sample once for every shape of shards and every window") {
  for (const auto& counts : shard_shapes()) {
    for (const std::uint64_t window : {1u, 2u, 10u, 25u, 1000u}) {
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        const Sampler sampler = Sampler::window(counts, 11, window);
        REQUIRE(sampler.size() == std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
        REQUIRE(is_permutation(order_of(sampler, epoch)));
      }
    }
  }
}

TEST_CASE("Sampler: a window group is whole shards, holds the window and no shard more than that") {
  for (const auto& counts : shard_shapes()) {
    const Indices shards = shards_of(counts);
    for (const std::uint64_t window : {1u, 2u, 10u, 25u, 1000u}) {
      const Sampler sampler = Sampler::window(counts, 11, window);
      const std::uint64_t n = sampler.size();
      const Indices order = order_of(sampler, 4);
      std::set<std::uint64_t> finished;
      for (std::uint64_t start = 0; start < n;) {
        const auto place = sampler.group_at(4, start);
        REQUIRE(place.cursor == start);
        std::uint64_t stop = start;
        Indices taken(counts.size());
        while (stop < n && sampler.group_at(4, stop) == place) ++taken[shards[order[stop++]]];

        std::uint64_t smallest_end = 0;  // what the group holds without its last shard, at most
        for (std::size_t shard = 0; shard < counts.size(); ++shard) {
          if (taken[shard] == 0) continue;
          REQUIRE(taken[shard] == counts[shard]);
          REQUIRE(finished.insert(shard).second);
          smallest_end = std::max(smallest_end, counts[shard]);
        }
        if (stop < n) REQUIRE(stop - start >= window);
        REQUIRE(stop - start - smallest_end < window);
        start = stop;
      }
    }
  }
}

TEST_CASE("Sampler: the group's place counts shards in their order and ends behind the last") {
  const Sampler sampler = Sampler::window(Indices(10, 10), 3, 25);
  CHECK(sampler.group_at(0, 0) == Sampler::GroupPlace{0, 0});
  CHECK(sampler.group_at(0, 29) == Sampler::GroupPlace{0, 0});
  CHECK(sampler.group_at(0, 30) == Sampler::GroupPlace{3, 30});
  CHECK(sampler.group_at(0, 99) == Sampler::GroupPlace{9, 90});
  CHECK(sampler.group_at(0, 100) == Sampler::GroupPlace{10, 100});
  CHECK(Sampler::full(100, 3).group_at(0, 50) == Sampler::GroupPlace{0, 0});
  CHECK(Sampler::window({}, 3, 25).group_at(0, 0) == Sampler::GroupPlace{0, 0});
}

TEST_CASE("Sampler: a batch of a wide window comes from as many shards as a uniform draw") {
  // 100 of 10,000 samples without replacement meet 63.4 of 100 shards on average.
  const Indices counts(100, 100);
  const Indices shards = shards_of(counts);
  double distinct = 0;
  int batches = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Indices order = order_of(Sampler::window(counts, seed, 10'000), 0);
    for (std::size_t start = 0; start < order.size(); start += 100, ++batches) {
      std::set<std::uint64_t> met;
      for (std::size_t i = start; i < start + 100; ++i) met.insert(shards[order[i]]);
      distinct += static_cast<double>(met.size());
    }
  }
  CHECK(distinct / batches == Approx(63.4).epsilon(0.01));
}

TEST_CASE("Sampler: in window mode every sample comes first equally often") {
  const Indices counts{3, 4, 5, 6, 7, 8, 9, 10};
  std::vector<std::uint64_t> first_of_group(10);
  std::vector<std::uint64_t> first_shard(counts.size());
  const Indices shards = shards_of(counts);
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    const Sampler sampler = Sampler::window(counts, seed, 1);
    std::uint64_t first = 0;
    sampler.order(0)->indices(0, 1, {&first, 1});
    ++first_shard[shards[first]];
    if (shards[first] == 7) ++first_of_group[first - 42];
  }
  CHECK(std::abs(chi_square_z(first_shard)) < 4);
  CHECK(std::abs(chi_square_z(first_of_group)) < 4);
}

TEST_CASE("Sampler: groups of one size are permuted differently") {
  const Sampler sampler = Sampler::window(Indices(50, 64), 1, 64);
  const Indices order = order_of(sampler, 0);
  std::set<Indices> inside;
  for (std::size_t group = 0; group < 50; ++group) {
    Indices places(order.begin() + static_cast<std::ptrdiff_t>(group * 64),
                   order.begin() + static_cast<std::ptrdiff_t>((group + 1) * 64));
    for (auto& place : places) place %= 64;
    inside.insert(places);
  }
  CHECK(inside.size() == 50);
}

// The orders below are version 1 of the permutations: a state of an older headpond
// resumes into the same order only as long as these numbers hold.
TEST_CASE("Sampler: golden vectors of version 1") {
  STATIC_REQUIRE(Sampler::kVersion == 1);
  const auto some = [](const Sampler& sampler, std::uint64_t epoch, std::uint64_t first,
                       std::uint64_t stride, std::size_t count) {
    Indices out(count);
    sampler.order(epoch)->indices(first, stride, out);
    return out;
  };
  CHECK(some(Sampler::full(1, 0), 0, 0, 1, 1) == Indices{0});
  CHECK(some(Sampler::full(2, 1), 0, 0, 1, 2) == Indices{1, 0});
  CHECK(some(Sampler::full(10, 0), 0, 0, 1, 10) == Indices{2, 9, 1, 8, 0, 4, 7, 6, 3, 5});
  CHECK(some(Sampler::full(10, 0), 1, 0, 1, 10) == Indices{9, 1, 5, 3, 8, 7, 0, 6, 4, 2});
  CHECK(some(Sampler::full(10, 1), 0, 0, 1, 10) == Indices{6, 5, 3, 8, 9, 7, 1, 4, 0, 2});
  CHECK(some(Sampler::full(100, 7), 0, 0, 1, 12) ==
        Indices{17, 22, 80, 79, 83, 41, 84, 28, 47, 48, 8, 6});
  CHECK(some(Sampler::full(1000, 7), 2, 990, 1, 10) ==
        Indices{886, 158, 14, 350, 850, 904, 829, 665, 188, 576});
  CHECK(some(Sampler::full(50'000, 7), 2, 0, 8, 8) ==
        Indices{4882, 48110, 21607, 48976, 34275, 23704, 16055, 24084});
  CHECK(some(Sampler::full(65'536, 7), 0, 65528, 1, 8) ==
        Indices{39137, 13429, 3342, 43111, 11404, 43298, 32851, 34031});
  CHECK(some(Sampler::full(1'281'167, 42), 5, 0, 256, 8) ==
        Indices{113274, 1231105, 138488, 250119, 189786, 635347, 1125854, 1160418});
  CHECK(some(Sampler::full(1'000'000'000'000, 42), 0, 999999999000, 1, 6) ==
        Indices{504723838021u, 154134655697u, 830034317126u, 531337769544u, 61137372202u,
                923637006211u});
  CHECK(some(Sampler::full(std::uint64_t{1} << 63, ~std::uint64_t{0}), ~0ull, 0, 1, 4) ==
        Indices{4756674698551680286u, 6549224991956731045u, 6142949175078721741u,
                7942921129134971326u});
  CHECK(some(Sampler::window({3, 0, 4, 5}, 0, 4), 0, 0, 1, 12) ==
        Indices{3, 5, 6, 4, 9, 8, 11, 7, 10, 0, 1, 2});
  CHECK(some(Sampler::window({3, 0, 4, 5}, 0, 4), 1, 0, 1, 12) ==
        Indices{9, 8, 10, 11, 7, 5, 0, 2, 4, 6, 1, 3});
  CHECK(
      some(Sampler::window(Indices(100, 1000), 9, 5000), 3, 4990, 4, 12) ==
      Indices{22224, 79053, 79737, 65564, 85625, 88213, 55377, 65053, 55309, 88818, 55657, 85517});
}
