#include "cache/cache_health.h"

namespace headpond {

bool CacheHealth::may_try() {
  const std::lock_guard lock(mutex_);
  if (failures_ == 0) return true;
  const auto pause = state_locked() == State::off ? kOffPause : kDegradedPause;
  const auto now = clock_.now();
  if (now - last_try_ < pause) return false;
  last_try_ = now;
  return true;
}

void CacheHealth::succeeded() {
  const std::lock_guard lock(mutex_);
  failures_ = 0;
}

void CacheHealth::failed() {
  const std::lock_guard lock(mutex_);
  if (failures_ < kFailuresOff) ++failures_;
  last_try_ = clock_.now();
}

CacheHealth::State CacheHealth::state() const {
  const std::lock_guard lock(mutex_);
  return state_locked();
}

CacheHealth::State CacheHealth::state_locked() const {
  if (failures_ == 0) return State::normal;
  return failures_ < kFailuresOff ? State::degraded : State::off;
}

}  // namespace headpond
