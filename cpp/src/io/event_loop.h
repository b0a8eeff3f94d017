#pragma once

#include <functional>

#include "headpond/clock.h"

namespace headpond {

// One thread that runs calls, by themselves and at times of the clock.
class EventLoop {
 public:
  virtual ~EventLoop() = default;

  virtual Clock::Time now() const = 0;
  // On the loop's thread only.
  virtual void at(Clock::Time time, std::function<void()> call) = 0;

  // From any thread: runs `call` on the loop's, in the order of posting.
  virtual void post(std::function<void()> call) = 0;
  virtual bool on_own_thread() const = 0;
};

}  // namespace headpond
