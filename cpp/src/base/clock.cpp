#include "headpond/clock.h"

namespace headpond {

Clock::Time SystemClock::now() const { return std::chrono::steady_clock::now(); }

void SystemClock::wait_until(std::condition_variable& signal, std::unique_lock<std::mutex>& lock,
                             Time deadline) {
  signal.wait_until(lock, deadline);
}

}  // namespace headpond
