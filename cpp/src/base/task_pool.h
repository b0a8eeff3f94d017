#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "headpond/result.h"

namespace headpond {

// Threads for work that blocks (system calls on files), started as it queues up, at most
// `threads_max`. Tasks start in the order they came. Safe to call from any thread.
class TaskPool {
 public:
  // Threads are called `name`-0 and so on. `refused` is told why one cannot be started; may be
  // null.
  TaskPool(std::string name, unsigned threads_max,
           std::function<void(const Error&)> refused = nullptr);
  ~TaskPool();  // as close, without a limit
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // False: closed, or not even one thread could be started; the task has not run and never will.
  // Runs on the calling thread nothing at all. The task must not throw.
  bool post(std::function<void()> task);

  // Refuses further tasks and waits until the queued ones have run, for as long as `limit` says
  // (nullopt: for ever). A task that is stuck then is left to its thread, with whatever it holds;
  // returns how many are.
  std::size_t close(std::optional<std::chrono::nanoseconds> limit);

 private:
  struct Shared;
  const std::string name_;
  const unsigned threads_max_;
  const std::function<void(const Error&)> refused_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace headpond
