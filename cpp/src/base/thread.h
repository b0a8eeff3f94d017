#pragma once

#include <functional>
#include <string>
#include <thread>

#include "headpond/result.h"

namespace headpond {

struct ThreadOptions {
  std::string name;  // at most 15 bytes are shown: "hp-cpu-0"
  int nice = 0;      // added to the process's own; refused silently by some kernels
};

// A named thread with all signals blocked; joins when destroyed.
//
// Engine threads must not run the host's signal handlers (Python's expects the
// main thread), and must not be chosen by the kernel to receive its signals.
class Thread {
 public:
  Thread() = default;
  // Errors: resource_limit, naming the limit, when no thread can be started.
  static Result<Thread> start(const ThreadOptions& options, std::function<void()> run);

  Thread(Thread&&) noexcept = default;
  Thread& operator=(Thread&& other) noexcept;
  ~Thread();
  bool joinable() const { return thread_.joinable(); }
  void join();
  // Leaves the thread to the kernel: only for one stuck in a call that cannot return.
  void detach() { thread_.detach(); }

 private:
  std::thread thread_;
};

}  // namespace headpond
