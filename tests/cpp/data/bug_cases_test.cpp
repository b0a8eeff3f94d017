// Faults that other loaders had, as properties of Sampler and Steps together.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "headpond/loader_state.h"
#include "headpond/sampler.h"
#include "headpond/steps.h"
#include "support/catch.h"

using namespace headpond;

namespace {

using Indices = std::vector<std::uint64_t>;

struct Job {
  std::uint64_t world = 1;
  std::uint64_t batch = 1;
  bool drop_last = false;
  Uneven uneven = Uneven::pad;
};

// What each rank is handed, batch after batch: valid rows and padding apart.
struct Delivered {
  std::vector<Indices> of_rank;
  Indices padding;
  std::uint64_t batches = 0;  // of rank 0
  std::uint64_t cursor = 0;   // afterwards

  Indices all() const {
    Indices joined;
    for (const auto& some : of_rank) joined.insert(joined.end(), some.begin(), some.end());
    return joined;
  }
};

Delivered deliver(const Sampler& sampler, std::uint64_t epoch, const Job& job, std::uint64_t cursor,
                  std::uint64_t batches_max = ~std::uint64_t{0}) {
  Delivered out;
  out.of_rank.resize(job.world);
  out.cursor = cursor;
  const auto order = sampler.order(epoch);
  while (out.batches < batches_max) {
    const std::uint64_t start = out.cursor;
    for (std::uint64_t rank = 0; rank < job.world; ++rank) {
      const Steps steps{sampler.size(), job.batch, job.world, rank, job.drop_last, job.uneven};
      const auto step = steps.at(start);
      if (!step) continue;
      for (std::uint64_t row = 0; row < step->rows; ++row) {
        std::uint64_t index = 0;
        order->indices(steps.position(*step, row), 1, {&index, 1});
        (row < step->valid ? out.of_rank[rank] : out.padding).push_back(index);
      }
      out.cursor = step->next;
    }
    if (out.cursor == start) break;
    ++out.batches;
  }
  return out;
}

bool each_once(Indices values, std::uint64_t n) {
  std::sort(values.begin(), values.end());
  if (values.size() != n) return false;
  for (std::size_t i = 0; i < n; ++i) {
    if (values[i] != i) return false;
  }
  return true;
}

Indices joined(Indices first, const Indices& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

TEST_CASE("resume: a job of four ranks goes on as one of two, of eight or of four") {
  const Sampler sampler = Sampler::full(48, 1);
  const Delivered before = deliver(sampler, 0, {4, 2}, 0, 3);
  REQUIRE(before.all().size() == 24);
  for (const std::uint64_t world : {2ull, 8ull, 4ull}) {
    const Delivered after = deliver(sampler, 0, {world, 2}, before.cursor);
    CHECK(each_once(joined(before.all(), after.all()), 48));
    CHECK(after.padding.empty());
  }
}

TEST_CASE("resume: the offset applies to the interrupted epoch only") {
  const Sampler sampler = Sampler::window({32, 32, 32, 32}, 1, 40);
  const Delivered before = deliver(sampler, 1, {1, 2}, 0, 61);
  const Delivered rest = deliver(sampler, 1, {1, 2}, before.cursor);
  CHECK(rest.batches == 3);
  CHECK(each_once(joined(before.all(), rest.all()), 128));
  CHECK(deliver(sampler, 2, {1, 2}, 0).batches == 64);
  CHECK(deliver(sampler, 3, {1, 2}, 0).batches == 64);
}

TEST_CASE("resume: any length, shard size, batch size and stop covers the epoch exactly once") {
  for (std::uint64_t n = 1; n <= 50; n += 7) {
    for (const std::uint64_t shard : {1ull, 3ull, 10ull}) {
      Indices counts(n / shard, shard);
      if (n % shard > 0) counts.push_back(n % shard);
      const Sampler sampler = Sampler::window(counts, 5, 8);
      for (const std::uint64_t batch : {1ull, 4ull, 7ull}) {
        const std::uint64_t whole = deliver(sampler, 0, {1, batch}, 0).batches;
        for (std::uint64_t stop = 0; stop <= whole; ++stop) {
          const Delivered before = deliver(sampler, 0, {1, batch}, 0, stop);
          const Delivered after = deliver(sampler, 0, {1, batch}, before.cursor);
          REQUIRE(each_once(joined(before.all(), after.all()), n));
          REQUIRE(before.batches + after.batches == whole);
        }
      }
    }
  }
}

TEST_CASE("resume: a state at the end of an epoch resumes to an empty pass, under every rule") {
  const Sampler sampler = Sampler::full(103, 1);
  for (const bool drop_last : {true, false}) {
    for (const Uneven uneven : {Uneven::pad, Uneven::drop, Uneven::allow}) {
      const Job job{4, 8, drop_last, uneven};
      const Delivered pass = deliver(sampler, 0, job, 0);
      CHECK(pass.batches > 0);
      CHECK(deliver(sampler, 0, job, pass.cursor).batches == 0);
    }
  }
}

TEST_CASE("epochs: three passes differ pairwise, come again with the seed, and split into ranks") {
  for (const std::uint64_t world : {1ull, 2ull}) {
    const Job job{world, 5, false, Uneven::allow};
    std::set<Indices> orders;
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      const Delivered pass = deliver(Sampler::full(22, 4), epoch, job, 0);
      CHECK(each_once(pass.all(), 22));
      CHECK(pass.of_rank == deliver(Sampler::full(22, 4), epoch, job, 0).of_rank);
      orders.insert(pass.all());
    }
    CHECK(orders.size() == 3);
  }
}

TEST_CASE("epochs: shards of one record are shuffled too, and differently in each epoch") {
  std::set<Indices> orders;
  for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
    const Delivered pass = deliver(Sampler::window(Indices(25, 1), 3, 5), epoch, {}, 0);
    CHECK(each_once(pass.all(), 25));
    CHECK(!std::is_sorted(pass.all().begin(), pass.all().end()));
    orders.insert(pass.all());
  }
  CHECK(orders.size() == 4);
}

TEST_CASE("mixing: shards with a short last one are read once each for every seed") {
  const Indices counts{9, 9, 9, 9, 9, 9, 9, 4};
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    REQUIRE(each_once(deliver(Sampler::full(67, seed), 0, {}, 0).all(), 67));
    REQUIRE(each_once(deliver(Sampler::window(counts, seed, 20), 0, {}, 0).all(), 67));
  }
}

TEST_CASE("mixing: one seed fixes shard order and sample order, another changes them") {
  const auto pass = [](std::uint64_t seed) {
    return deliver(Sampler::window(Indices(10, 5), seed, 12), 0, {}, 0).all();
  };
  CHECK(pass(9) == pass(9));
  CHECK(pass(9) != pass(10));
}

TEST_CASE(
    "uneven: shards of 10 and 20 records on two ranks give equal steps, or counts told before") {
  const Sampler sampler = Sampler::window({10, 20}, 0, 1);
  for (const Uneven uneven : {Uneven::pad, Uneven::drop, Uneven::allow}) {
    const Job job{2, 4, false, uneven};
    const Delivered pass = deliver(sampler, 0, job, 0);
    CHECK(each_once(pass.all(), 30));
    for (std::uint64_t rank = 0; rank < 2; ++rank) {
      CHECK(Steps{30, 4, 2, rank, false, uneven}.count_from(0) == pass.batches);
    }
  }
}

TEST_CASE("uneven: unmarked samples of four ranks are disjoint, padding is the order's start") {
  const Sampler sampler = Sampler::full(10, 2);
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    const Delivered pass = deliver(sampler, epoch, {4, 3}, 0);
    CHECK(each_once(pass.all(), 10));
    Indices start(2);
    sampler.order(epoch)->indices(0, 1, start);
    CHECK(pass.padding == start);
  }
}

TEST_CASE("batch count: drop_last loses less than one batch, whatever the shards") {
  const Sampler sampler = Sampler::window(Indices(10, 100), 0, 100);
  CHECK(deliver(sampler, 0, {1, 128, true}, 0).batches == 7);
  CHECK(deliver(sampler, 0, {1, 1000, true}, 0).batches == 1);
}

TEST_CASE("random numbers: forty draws of two epochs are forty values, on any rank") {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> draws;
  std::set<std::uint64_t> values;
  for (const std::uint64_t world : {1ull, 3ull}) {
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      const Delivered pass = deliver(Sampler::full(20, 1), epoch, {world, 2}, 0);
      for (const std::uint64_t sample : pass.all()) {
        const std::uint64_t draw = SampleRandom(1, epoch, sample).next();
        const auto [known, added] = draws.try_emplace({epoch, sample}, draw);
        CHECK(known->second == draw);
        values.insert(draw);
      }
    }
  }
  CHECK(draws.size() == 40);
  CHECK(values.size() == 40);
}
