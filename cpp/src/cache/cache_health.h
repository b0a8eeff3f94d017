#pragma once

#include <chrono>
#include <mutex>

#include "headpond/clock.h"

namespace headpond {

// Whether the disk below the cache is to be written to. After a failure only one fill at a time
// tries, at most once a `degraded_pause`; after `failures_off` in a row, once an `off_pause`. One
// success makes all well again. Safe to call from any thread.
class CacheHealth {
 public:
  enum class State { normal, degraded, off };
  static constexpr unsigned kFailuresOff = 5;
  static constexpr std::chrono::milliseconds kDegradedPause{1000};
  static constexpr std::chrono::milliseconds kOffPause{30'000};

  explicit CacheHealth(const Clock& clock) : clock_(clock) {}

  // May a fill begin? Each that may says afterwards how it went.
  bool may_try();
  void succeeded();
  void failed();
  State state() const;

 private:
  State state_locked() const;

  const Clock& clock_;
  mutable std::mutex mutex_;
  unsigned failures_ = 0;  // in a row
  Clock::Time last_try_{};
};

}  // namespace headpond
