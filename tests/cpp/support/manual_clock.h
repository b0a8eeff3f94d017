#pragma once

#include <mutex>
#include <set>
#include <utility>

#include "headpond/clock.h"

namespace headpond {

// Time that a test moves. Waiters wake when the test advances past their deadline.
class ManualClock final : public Clock {
 public:
  Time now() const override {
    const std::lock_guard lock(mutex_);
    return now_;
  }

  void wait_until(std::condition_variable& signal, std::unique_lock<std::mutex>& lock,
                  Time deadline) override {
    {
      const std::lock_guard own(mutex_);
      if (now_ >= deadline) return;
      waiters_.insert({&signal, lock.mutex()});
      changed_.notify_all();
    }
    // advance() cannot take the waiter's mutex, so a notification may come before this
    // wait has begun: a short one, and the caller looks again (spurious wake-ups are allowed).
    signal.wait_for(lock, std::chrono::milliseconds(1));
    const std::lock_guard own(mutex_);
    waiters_.erase(waiters_.find({&signal, lock.mutex()}));
  }

  // Not with a waiter's lock held.
  void advance(Duration by) {
    std::multiset<Waiter> waiters;
    {
      const std::lock_guard lock(mutex_);
      now_ += by;
      waiters = waiters_;
    }
    for (const auto& [signal, mutex] : waiters) {
      // Who is about to wait holds its lock until it does: then it cannot miss this.
      mutex->lock();
      mutex->unlock();
      signal->notify_all();
    }
  }

  // Returns once at least `count` threads wait on this clock.
  void await_waiters(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiters_.size() >= count; });
  }

 private:
  using Waiter = std::pair<std::condition_variable*, std::mutex*>;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Time now_{};
  std::multiset<Waiter> waiters_;
};

}  // namespace headpond
