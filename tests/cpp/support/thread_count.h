#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <thread>

namespace headpond {

// Threads of this process.
inline std::size_t thread_count() {
  const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

// Whether there are at most `count`. A thread that was joined leaves the list a moment later, so
// this looks again for up to 10 s.
inline bool threads_fall_to(std::size_t count) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (thread_count() > count) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace headpond
