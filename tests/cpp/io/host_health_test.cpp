#include "io/host_health.h"

#include <algorithm>

#include "support/catch.h"

using namespace headpond;
using namespace std::chrono_literals;

namespace {

Clock::Time at(Clock::Duration since) { return Clock::Time(1h) + since; }

// Fails until it is down.
void bring_down(HostHealth& health, Clock::Time now) {
  health.start(now);
  CHECK_FALSE(health.unanswered(now, false));
  CHECK_FALSE(health.unanswered(now, false));
  CHECK(health.unanswered(now, false));
  CHECK(health.down());
}

}  // namespace

TEST_CASE("a host is down after three failures in a row, and an answer between resets the count") {
  HostHealth health({}, 1);
  for (int i = 0; i < 10; ++i) {
    CHECK_FALSE(health.unanswered(at(0s), false));
    CHECK_FALSE(health.unanswered(at(0s), false));
    health.answered(i % 2 == 0, false);  // a 404 is an answer too
  }
  CHECK_FALSE(health.down());
  bring_down(health, at(0s));
}

TEST_CASE("a refusal is the answer of a live host") {
  HostHealth health({}, 1);
  for (int i = 0; i < 10; ++i) {
    health.unanswered(at(0s), false);
    health.unanswered(at(0s), false);
    health.refused(at(0s), at(0s), false, std::nullopt);
  }
  CHECK_FALSE(health.down());
}

TEST_CASE("of a host that is down one probe goes at a time, at most 20 s apart") {
  for (std::uint64_t seed = 1; seed < 50; ++seed) {
    HostHealth health({}, seed);
    auto now = at(0s);
    bring_down(health, now);
    auto last = now;
    for (int probe = 0; probe < 40; ++probe) {
      const auto next = health.next_start();
      REQUIRE(next >= now);
      REQUIRE(next - last <= 20s);
      now = next;
      REQUIRE(health.may_start(now, 0));
      REQUIRE(health.start(now));
      last = now;
      REQUIRE_FALSE(health.may_start(now + 100s, 0));
      REQUIRE(health.next_start() == Clock::Time::max());
      now += 3s;  // until it fails
      health.unanswered(now, true);
    }
  }
}

TEST_CASE("any answer to a probe opens the host again, gently") {
  HostHealth health({}, 1);
  bring_down(health, at(0s));
  REQUIRE(health.start(at(5s)));
  health.answered(true, true);
  CHECK_FALSE(health.down());
  CHECK(health.may_start(at(5s), 0));
  CHECK(health.may_start(at(5s), 1));
  CHECK_FALSE(health.may_start(at(5s), 2));
  for (int i = 0; i < 40; ++i) health.answered(true, false);
  CHECK(health.may_start(at(5s), 31));
  CHECK_FALSE(health.may_start(at(5s), 32));
}

TEST_CASE("failures of calls that were under way do not stop the probe") {
  HostHealth health({}, 1);
  bring_down(health, at(0s));
  const auto probe = health.next_start();
  REQUIRE(health.start(probe));
  health.unanswered(probe + 1ms, false);
  CHECK_FALSE(health.may_start(probe + 1min, 0));  // it is still out
  health.unanswered(probe + 3s, true);
  CHECK(health.next_start() < Clock::Time::max());
}

TEST_CASE("an outage counts from the first failure, and giving up begins anew") {
  RetryOptions options;
  options.outage = 60s;
  HostHealth health(options, 1);
  health.unanswered(at(0s), false);
  health.unanswered(at(7s), false);
  health.unanswered(at(9s), false);
  REQUIRE(health.down());
  CHECK(health.outage_end() == at(60s));
  health.give_up();
  CHECK(health.may_start(at(60s), 0));
  CHECK_FALSE(health.unanswered(at(60s), false));
}

TEST_CASE("a wave of refusals halves the limit once, and successes bring it back") {
  HostHealth health({}, 1);
  CHECK(health.limit() == 32);
  for (int i = 0; i < 32; ++i) health.refused(at(0s), at(1s), false, std::nullopt);
  CHECK(health.limit() == 16);
  for (int i = 0; i < 16; ++i) health.refused(at(2s), at(3s), false, std::nullopt);
  CHECK(health.limit() == 8);
  for (int wave = 2; wave < 10; ++wave)
    health.refused(at(wave * 60s), at(wave * 60s + 1s), false, std::nullopt);
  CHECK(health.limit() == 1);
  for (int i = 0; i < 600; ++i) health.answered(true, false);
  CHECK(health.limit() == 32);
}

TEST_CASE("Retry-After stops all starts for as long as it says, at most 60 s") {
  HostHealth health({}, 1);
  health.refused(at(0s), at(0s), false, 3);
  CHECK_FALSE(health.may_start(at(2999ms), 0));
  CHECK(health.may_start(at(3s), 0));
  CHECK(health.next_start() == at(3s));
  health.refused(at(3s), at(3s), false, 1'000'000'000);
  CHECK_FALSE(health.may_start(at(62s), 0));
  CHECK(health.may_start(at(63s), 0));
  HostHealth other({}, 1);
  other.refused(at(0s), at(0s), false, 0);
  CHECK(other.may_start(at(0s), 0));
}

TEST_CASE("delays are drawn from windows that double up to 20 s") {
  for (const bool busy : {false, true}) {
    std::vector<Clock::Duration> longest(12);
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
      HostHealth health({}, seed);
      for (unsigned spent = 1; spent < longest.size(); ++spent)
        longest[spent] = std::max(longest[spent], health.delay(spent, busy, std::nullopt));
    }
    for (unsigned spent = 1; spent < longest.size(); ++spent) {
      const Clock::Duration first = busy ? 1s : 100ms;
      const Clock::Duration window = std::min<Clock::Duration>(first * (1u << (spent - 1)), 20s);
      INFO("spent " << spent);
      CHECK(longest[spent] <= window);
      CHECK(longest[spent] >= window * 9 / 10);
    }
  }
}

TEST_CASE("a host whose tokens are spent gets one retry a second, and earns them back") {
  HostHealth health({}, 1);
  for (int i = 0; i < 100; ++i) CHECK(health.pay(at(0s), false));
  CHECK(health.tokens() == 0);
  for (int second = 0; second < 5; ++second) {
    CHECK(health.pay(at(second * 1s), false));
    CHECK_FALSE(health.pay(at(second * 1s), false));
    CHECK_FALSE(health.pay(at(second * 1s + 999ms), false));
    CHECK(health.next_unpaid() == at((second + 1) * 1s));
  }
  for (int i = 0; i < 10; ++i) health.answered(true, false);
  CHECK(health.tokens() == 10);
  CHECK(health.pay(at(4500ms), true));  // a time-out costs 10
  CHECK(health.tokens() == 0);
  CHECK_FALSE(health.pay(at(4500ms), true));
  for (int i = 0; i < 1000; ++i) health.answered(true, false);
  CHECK(health.tokens() == 500);
}

TEST_CASE("what is missing here lowers the limit, and pauses longer each time") {
  HostHealth health({}, 1);
  health.hindered(at(0s), at(0s), false);
  CHECK(health.limit() == 16);
  CHECK_FALSE(health.down());
  CHECK(health.tokens() == 500);
  Clock::Duration last = 0s;
  auto now = at(0s);
  for (int i = 0; i < 10; ++i) {
    const auto pause = health.next_start() - now;
    CHECK(pause >= last);
    CHECK(pause <= 5s);
    CHECK_FALSE(health.may_start(now, 0));
    last = pause;
    now = health.next_start();
    CHECK(health.may_start(now, 0));
    health.hindered(now, now, false);
    health.hindered(now - 1ms, now, false);  // of the same wave
    CHECK(health.hindered_times() == static_cast<unsigned>(i + 2));
  }
  CHECK(health.limit() == 1);
  CHECK(last == 5s);
  health.answered(true, false);
  now = now + 1min;
  health.hindered(now, now, false);
  CHECK(health.next_start() - now == 100ms);
}

TEST_CASE("a probe that is hindered says nothing, and the next one keeps its pace") {
  HostHealth health({}, 1);
  bring_down(health, at(0s));
  for (int i = 0; i < 20; ++i) {
    const auto now = health.next_start();
    REQUIRE(health.start(now));
    health.hindered(now, now, true);
    CHECK(health.down());
    CHECK(health.next_start() < Clock::Time::max());
    CHECK(health.next_start() - now <= 20s);
  }
}
