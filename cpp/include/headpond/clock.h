#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace headpond {

// Where time comes from. Deadlines ask a Clock, so that tests move it by hand.
// Safe to call from any thread.
class Clock {
 public:
  using Duration = std::chrono::nanoseconds;
  using Time = std::chrono::time_point<std::chrono::steady_clock, Duration>;

  virtual ~Clock() = default;
  virtual Time now() const = 0;

  // Waits on `signal` (with `lock` held) until it is notified or `deadline` has
  // come on this clock; spurious wake-ups are allowed, as with std::condition_variable.
  virtual void wait_until(std::condition_variable& signal, std::unique_lock<std::mutex>& lock,
                          Time deadline) = 0;
};

// CLOCK_MONOTONIC. Stateless; one per owner is fine.
class SystemClock final : public Clock {
 public:
  Time now() const override;
  void wait_until(std::condition_variable& signal, std::unique_lock<std::mutex>& lock,
                  Time deadline) override;
};

}  // namespace headpond
