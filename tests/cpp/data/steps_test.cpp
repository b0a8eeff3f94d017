#include "headpond/steps.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "headpond/sampler.h"
#include "support/catch.h"

using namespace headpond;

namespace {

constexpr std::array kUneven{Uneven::pad, Uneven::drop, Uneven::allow};

std::string text_of(const Steps& s) {
  std::ostringstream out;
  out << "n " << s.n << " batch " << s.batch << " world " << s.world << " rank " << s.rank
      << " drop_last " << s.drop_last << " uneven " << static_cast<int>(s.uneven);
  return out.str();
}

// All ways to deal an epoch of n positions; the rank is left at 0.
template <class Visit>
void for_each_deal(std::uint64_t n, std::uint64_t world_max, std::uint64_t batch_max,
                   Visit&& visit) {
  for (std::uint64_t world = 1; world <= world_max; ++world) {
    for (std::uint64_t batch = 1; batch <= batch_max; ++batch) {
      for (const bool drop_last : {false, true}) {
        for (const Uneven uneven : kUneven) {
          visit(Steps{n, batch, world, 0, drop_last, uneven});
        }
      }
    }
  }
}

std::uint64_t first_bits(std::uint64_t count) {
  return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

// What all ranks together take from `cursor` to the end, as a bit per position
// (n <= 64), and the first thing that is wrong about it.
struct Pass {
  std::uint64_t taken = 0;
  std::vector<std::uint64_t> stops;  // cursors between steps, the first and the last included
  std::string wrong;
};

Pass run_pass(Steps steps, std::uint64_t cursor) {
  Pass pass;
  const std::uint64_t start = cursor;
  std::vector<std::uint64_t> counted(steps.world, 0);
  pass.stops.push_back(cursor);
  const auto wrong = [&](const char* what) {
    if (pass.wrong.empty()) {
      pass.wrong = std::string(what) + " at cursor " + std::to_string(cursor) + ", " +
                   text_of(steps) + ", started at " + std::to_string(start);
    }
  };
  while (true) {
    std::optional<std::uint64_t> next;
    std::optional<std::uint64_t> rows;
    std::uint64_t ranks_with_rows = 0;
    for (steps.rank = 0; steps.rank < steps.world; ++steps.rank) {
      const auto step = steps.at(cursor);
      if (!step) continue;
      ++ranks_with_rows;
      ++counted[steps.rank];
      if (step->cursor != cursor) wrong("another cursor");
      if (step->rows == 0) wrong("an empty batch");
      if (step->rows > steps.batch) wrong("more rows than the batch holds");
      if (step->valid > step->rows) wrong("more valid rows than rows");
      if (steps.uneven != Uneven::pad && step->valid != step->rows) wrong("padding");
      if (steps.uneven != Uneven::allow && rows.value_or(step->rows) != step->rows) {
        wrong("ranks with unequal rows");
      }
      if (next.value_or(step->next) != step->next) wrong("ranks that disagree on the next cursor");
      if (step->next <= cursor || step->next > steps.n) wrong("a next cursor out of place");
      next = step->next;
      rows = step->rows;
      for (std::uint64_t row = 0; row < step->rows; ++row) {
        const std::uint64_t global = cursor + row * steps.world + steps.rank;
        const std::uint64_t position = steps.position(*step, row);
        if (row >= step->valid) {
          if (position != global % steps.n || global < steps.n) wrong("padding from elsewhere");
          continue;
        }
        if (position != global) wrong("a row at another position");
        const std::uint64_t bit = std::uint64_t{1} << position;
        if ((pass.taken & bit) != 0) wrong("a position that came twice");
        pass.taken |= bit;
      }
    }
    if (ranks_with_rows == 0) break;
    if (steps.uneven != Uneven::allow && ranks_with_rows != steps.world) {
      wrong("ranks with unequal numbers of steps");
    }
    cursor = *next;
    pass.stops.push_back(cursor);
  }
  for (steps.rank = 0; steps.rank < steps.world; ++steps.rank) {
    if (steps.count_from(start) != counted[steps.rank])
      wrong("a count that is not the number of steps");
  }
  // The consumed positions are start to cursor, whatever happened.
  if (pass.taken != (first_bits(cursor) & ~first_bits(start))) wrong("a hole in what was consumed");
  const std::uint64_t lost = steps.n - cursor;
  if (steps.drop_last ? lost >= steps.world * steps.batch
                      : lost >= (steps.uneven == Uneven::drop ? steps.world : 1)) {
    wrong("more left over than the rule says");
  }
  return pass;
}

}  // namespace

TEST_CASE("Steps: from every cursor every deal takes a prefix of the rest, once, with equal rows") {
  for (std::uint64_t n = 0; n <= 64; ++n) {
    for (std::uint64_t cursor = 0; cursor <= n; ++cursor) {
      std::string wrong;
      for_each_deal(n, 8, 5, [&](const Steps& deal) {
        if (wrong.empty()) wrong = run_pass(deal, cursor).wrong;
      });
      if (!wrong.empty()) FAIL(wrong);
    }
  }
  SUCCEED();
}

TEST_CASE(
    "Steps: stopped anywhere and resumed by any other deal, an epoch is a prefix without repeats") {
  std::uint64_t resumes = 0;
  for (std::uint64_t n = 0; n <= 64; ++n) {
    // What a deal takes depends on the cursor alone, so each pass is made once.
    std::vector<std::vector<std::uint64_t>> taken(n + 1);
    std::vector<std::vector<std::uint64_t>> stops;
    std::vector<Steps> deals;
    for_each_deal(n, 8, 5, [&](const Steps& deal) { deals.push_back(deal); });
    for (std::uint64_t cursor = 0; cursor <= n; ++cursor) {
      for (const Steps& deal : deals) {
        Pass pass = run_pass(deal, cursor);
        taken[cursor].push_back(pass.taken);
        if (cursor == 0) stops.push_back(std::move(pass.stops));
      }
    }
    for (std::size_t before = 0; before < deals.size(); ++before) {
      for (const std::uint64_t stop : stops[before]) {
        for (std::size_t after = 0; after < deals.size(); ++after) {
          const std::uint64_t rest = taken[stop][after];
          const std::uint64_t all = first_bits(stop) | rest;
          const bool once = (first_bits(stop) & rest) == 0;
          const bool prefix = (all & (all + 1)) == 0;
          const bool whole =
              deals[after].drop_last || deals[after].uneven == Uneven::drop || all == first_bits(n);
          ++resumes;
          if (!once || !prefix || !whole) {
            FAIL(text_of(deals[before])
                 << " stopped at " << stop << ", then " << text_of(deals[after]));
          }
        }
      }
    }
  }
  CHECK(resumes > 20'000'000);
}

TEST_CASE("Steps: the end of a long epoch is dealt as the end of a short one") {
  SampleRandom random(1, 2, 3);
  for (int round = 0; round < 20'000; ++round) {
    Steps steps;
    steps.n = 1 + random.below(1'000'000'000);
    steps.world = 1 + random.below(300);
    steps.batch = 1 + random.below(700);
    steps.drop_last = random.below(4) == 0;
    steps.uneven = kUneven[random.below(3)];
    const std::uint64_t whole = steps.world * steps.batch;
    const std::uint64_t cursor = random.below(steps.n + 1);
    const std::uint64_t left = steps.n - cursor;

    std::uint64_t rows = 0;
    std::uint64_t valid = 0;
    for (steps.rank = 0; steps.rank < steps.world; ++steps.rank) {
      const auto step = steps.at(cursor);
      const std::uint64_t count = steps.count_from(cursor);
      REQUIRE(count == (step ? 1 + steps.count_from(step->next) : 0));
      if (!step) continue;
      rows += step->rows;
      valid += step->valid;
    }
    std::uint64_t expected = std::min(left, whole);
    if (left < whole && steps.drop_last) expected = 0;
    if (left < whole && steps.uneven == Uneven::drop) expected -= expected % steps.world;
    INFO(text_of(steps) << " cursor " << cursor);
    REQUIRE(valid == expected);
    if (steps.uneven == Uneven::pad)
      REQUIRE(rows == (valid + steps.world - 1) / steps.world * steps.world);
    if (steps.uneven != Uneven::pad) REQUIRE(rows == valid);
  }
}

TEST_CASE(
    "Steps: counts of an epoch of 2^63 positions and of steps beyond 64 bits do not overflow") {
  const std::uint64_t n = std::uint64_t{1} << 63;
  Steps steps{n, 256, 8, 3, false, Uneven::pad};
  CHECK(steps.count_from(0) == n / 2048);
  const auto last = steps.at(n - 5);
  REQUIRE(last);
  CHECK(last->rows == 1);
  CHECK(last->valid == 1);
  CHECK(last->next == n);
  CHECK(steps.position(*last, 0) == n - 2);

  steps.batch = std::uint64_t{1} << 62;
  CHECK(steps.count_from(0) == 1);
  const auto only = steps.at(0);
  REQUIRE(only);
  CHECK(only->rows == n / 8);
  CHECK(only->next == n);
}

TEST_CASE("Steps: padding repeats the epoch's start even where it is shorter than the world") {
  for (std::uint64_t rank = 0; rank < 8; ++rank) {
    const Steps steps{3, 4, 8, rank, false, Uneven::pad};
    const auto step = steps.at(0);
    REQUIRE(step);
    CHECK(step->rows == 1);
    CHECK(step->valid == (rank < 3 ? 1 : 0));
    CHECK(steps.position(*step, 0) == rank % 3);
    CHECK(!steps.at(step->next));
  }
}

TEST_CASE(
    "Steps: ten positions on four ranks come once each, or padded by exactly two marked rows") {
  std::array<std::uint64_t, 4> allowed{};
  std::uint64_t marked = 0;
  std::uint64_t padded_rows = 0;
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    const Steps allow{10, 3, 4, rank, false, Uneven::allow};
    allowed[rank] = allow.at(0)->rows;
    const Steps pad{10, 3, 4, rank, false, Uneven::pad};
    padded_rows += pad.at(0)->rows;
    marked += pad.at(0)->rows - pad.at(0)->valid;
  }
  CHECK(allowed == std::array<std::uint64_t, 4>{3, 3, 2, 2});
  CHECK(padded_rows == 12);
  CHECK(marked == 2);
}

TEST_CASE("Steps: drop_last drops less than one step, never a whole short epoch of a rank") {
  CHECK(Steps{1000, 128, 1, 0, true, Uneven::pad}.count_from(0) == 7);
  CHECK(Steps{1000, 1000, 1, 0, true, Uneven::pad}.count_from(0) == 1);
  CHECK(Steps{1000, 1001, 1, 0, true, Uneven::pad}.count_from(0) == 0);
}

TEST_CASE("Steps: a remainder smaller than the world gives no empty batch") {
  // Nine positions, two rows each on four ranks: one is left.
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    const auto last = [&](bool drop_last, Uneven uneven) {
      return Steps{9, 2, 4, rank, drop_last, uneven}.at(8);
    };
    CHECK(!last(true, Uneven::pad));
    CHECK(!last(false, Uneven::drop));
    CHECK(last(false, Uneven::allow).has_value() == (rank == 0));
    REQUIRE(last(false, Uneven::pad));
    CHECK(last(false, Uneven::pad)->rows == 1);
  }
}

TEST_CASE("Steps: nothing comes from an empty epoch or from behind the end") {
  for_each_deal(0, 8, 5, [](const Steps& deal) {
    CHECK(!deal.at(0));
    CHECK(deal.count_from(0) == 0);
  });
  const Steps steps{10, 2, 1, 0, false, Uneven::pad};
  CHECK(!steps.at(10));
  CHECK(!steps.at(11));
  CHECK(steps.count_from(11) == 0);
}
