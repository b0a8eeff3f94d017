#include "headpond/shard_order.h"

#include <numeric>

#include "support/catch.h"

namespace headpond {
namespace {

using Indices = std::vector<std::uint64_t>;

std::vector<Indices> shapes() {
  return {{5}, {0, 5}, {3, 0, 4, 5}, {0, 0, 7, 0}, {1, 1, 1, 1, 1, 1}, {10, 2, 9, 30, 1, 0, 4}, {}};
}

Indices starts_of(const Indices& counts) {
  Indices starts(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), std::uint64_t{0});
  return starts;
}

void add_next(ShardOrder& order, const Indices& counts) {
  const auto shard = order.shard_at(order.next_slot());
  order.add(counts[shard], starts_of(counts)[shard]);
}

Indices some(const EpochOrder& order, std::uint64_t first, std::uint64_t stop) {
  Indices out(stop - first);
  order.indices(first, 1, out);
  return out;
}

TEST_CASE("ShardOrder: what is known of a growing order is the order that all counts give") {
  for (const auto& counts : shapes()) {
    const auto n = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    for (const std::uint64_t window : {1u, 4u, 1000u}) {
      const Sampler sampler = Sampler::window(counts, 5, window);
      const auto whole = sampler.order(3);
      ShardOrder order(sampler, counts.size(), 3);
      while (!order.complete()) {
        CHECK(order.known() <= n);
        CHECK(some(order, 0, order.known()) == some(*whole, 0, order.known()));
        add_next(order, counts);
      }
      CHECK(order.known() == n);
      CHECK(some(order, 0, n) == some(*whole, 0, n));
    }
  }
}

TEST_CASE("ShardOrder: begun at any group it goes on as the order from the start") {
  for (const auto& counts : shapes()) {
    const auto n = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    for (const std::uint64_t window : {1u, 4u, 9u}) {
      const Sampler sampler = Sampler::window(counts, 5, window);
      const auto whole = sampler.order(1);
      for (std::uint64_t position = 0; position < n; ++position) {
        const auto place = sampler.group_at(1, position);
        ShardOrder order(sampler, counts.size(), 1, place);
        CHECK(order.first_position() == place.cursor);
        while (!order.complete()) add_next(order, counts);
        CHECK(order.known() == n);
        CHECK(some(order, position, n) == some(*whole, position, n));
        CHECK(order.place_of(position) == place);
      }
      ShardOrder behind(sampler, counts.size(), 1, sampler.group_at(1, n));
      CHECK(behind.complete());
      CHECK(behind.known() == n);
    }
  }
}

TEST_CASE("ShardOrder: without shuffling it is the dataset's order, known shard by shard") {
  const Indices counts{3, 0, 4, 5};
  ShardOrder order(Sampler::none(12), counts.size(), 7);
  Indices known;
  while (!order.complete()) {
    add_next(order, counts);
    known.push_back(order.known());
  }
  CHECK(known == Indices{3, 3, 7, 12});
  Indices expected(12);
  std::iota(expected.begin(), expected.end(), std::uint64_t{0});
  CHECK(some(order, 0, 12) == expected);
}

TEST_CASE("ShardOrder: a group is known when the shard that fills it is, not before") {
  ShardOrder order(Sampler::window({4, 4, 4, 4}, 1, 6), 4, 0);
  const Indices counts(4, 4);
  const std::uint64_t expected[] = {0, 8, 8, 16};
  for (const auto known : expected) {
    add_next(order, counts);
    CHECK(order.known() == known);
  }
  const auto group = order.group_of(9);
  CHECK(group.first_slot == 2);
  CHECK(group.stop_slot == 4);
  CHECK(group.start == 8);
  CHECK(group.stop == 16);
}

}  // namespace
}  // namespace headpond
