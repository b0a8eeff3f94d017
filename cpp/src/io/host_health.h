#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>

#include "headpond/clock.h"

namespace headpond {

struct RetryOptions {
  using Duration = std::chrono::milliseconds;

  unsigned retries = 5;
  unsigned connections = 32;
  Duration outage{300'000};
  Duration delay_min{100};         // the first delay is drawn from [0, this), the next from
  Duration delay_max{20'000};      // twice as much, at most from [0, this)
  Duration busy_delay_min{1'000};  // the same after 429 and 503
  Duration retry_after_max{60'000};
  unsigned down_after = 3;  // failures in a row without an answer
  int tokens = 500;         // retries cost `retry_tokens`, after a time-out `timeout_tokens`;
  int retry_tokens = 5;     // a success gives one back
  int timeout_tokens = 10;
  Duration without_tokens{1'000};  // between two retries of a host whose tokens are spent
  Duration hindered_max{5'000};    // between two starts while something is missing here
};

// What is known of one host, and what follows for the calls that want to go there. It
// only decides; times are given to it. For one thread.
//
// Three states of one host:
// - up: at most `limit` calls are under way. A refusal halves the limit, at most once
//   per call started since; successes raise it again. Retry-After stops all starts.
// - down, after `down_after` failures in a row with no answer between: one call at a
//   time goes as a probe, after a growing delay of at most 20 s. Any answer: up again.
// - given up: down for `outage`. Whoever waits is told so; the next call begins anew.
class HostHealth {
 public:
  using Time = Clock::Time;

  HostHealth(const RetryOptions& options, std::uint64_t seed);

  // May one more start, with `in_flight` under way?
  bool may_start(Time now, std::size_t in_flight) const;
  // When may_start can change by the clock alone; Time::max(): it cannot.
  Time next_start() const;
  // A call starts; true: as a probe.
  bool start(Time now);

  // How attempts end. An answer is whatever a live host says, a 404 too.
  void answered(bool good, bool probe);
  void refused(Time started, Time now, bool probe, std::optional<std::int64_t> retry_after_s);
  // True: this makes the host down.
  bool unanswered(Time now, bool probe);
  // It failed here, for want of a file handle or memory: that says nothing about the host. Fewer
  // at a time, after a pause.
  void hindered(Time started, Time now, bool probe);
  // Times in a row, with no success between; those that were under way together are one.
  unsigned hindered_times() const { return hindered_; }
  void forget_hindered() { hindered_ = 0; }
  // An attempt that was ended by us says nothing.
  void abandoned(bool probe);

  bool down() const { return down_; }
  // When those who wait are to be told, while it is down.
  Time outage_end() const { return down_since_ + options_.outage; }
  void give_up();

  // How long the `spent`-th retry of a call waits.
  Clock::Duration delay(unsigned spent, bool busy, std::optional<std::int64_t> retry_after_s);
  // Pays for a retry: with tokens, or as the one that goes without. False: not before
  // next_unpaid(), or more tokens.
  bool pay(Time now, bool timed_out);
  Time next_unpaid() const { return next_unpaid_; }

  double limit() const { return limit_; }
  int tokens() const { return tokens_; }

 private:
  Clock::Duration jitter(Clock::Duration first, unsigned doublings);
  Clock::Duration honoured(std::int64_t retry_after_s) const;
  void plan_probe(Time now);

  const RetryOptions options_;
  std::mt19937_64 random_;
  double limit_;
  double threshold_;  // below it the limit grows by one per success, above by one per round
  int tokens_;
  unsigned unanswered_ = 0;  // in a row
  Time first_unanswered_{};
  Time last_cut_{};    // of the limit
  unsigned cuts_ = 0;  // in a row
  Time paused_until_{};
  Time next_unpaid_{};
  Time last_hindered_{};
  unsigned hindered_ = 0;  // in a row
  bool down_ = false;
  Time down_since_{};
  bool probing_ = false;
  unsigned probes_ = 0;
  Time last_probe_{};
  Time next_probe_{};
};

}  // namespace headpond
