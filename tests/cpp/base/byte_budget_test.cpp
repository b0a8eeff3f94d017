#include "headpond/byte_budget.h"

#include "support/catch.h"

using namespace headpond;
using Rank = ByteBudget::Rank;

TEST_CASE("ByteBudget: credits stay within the limit and come back") {
  ByteBudget budget(100);
  auto first = budget.take(60, Rank::later);
  REQUIRE(first);
  CHECK(!budget.take(41, Rank::later));
  auto second = budget.take(40, Rank::later);
  REQUIRE(second);
  CHECK(budget.used() == 100);
  first->release();
  second.reset();
  CHECK(budget.used() == 0);
  CHECK(budget.peak() == 100);
}

TEST_CASE("ByteBudget: the oldest batch always gets its bytes") {
  ByteBudget budget(10);
  auto held = budget.take(10, Rank::later);
  CHECK(!budget.take(1, Rank::later));
  auto oldest = budget.take(1000, Rank::oldest);
  REQUIRE(oldest);
  CHECK(budget.used() == 1010);
}

TEST_CASE("ByteBudget: a refused taker is told once when bytes come back") {
  ByteBudget budget(10);
  int told = 0;
  budget.on_release([&] { ++told; });
  auto a = budget.take(5, Rank::later);
  auto b = budget.take(5, Rank::later);
  b.reset();
  CHECK(told == 0);  // nobody was refused
  CHECK(!budget.take(6, Rank::later));
  a.reset();
  CHECK(told == 1);
}
