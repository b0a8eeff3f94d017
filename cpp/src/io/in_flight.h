#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace headpond {

// Counts the requests of one store from `read` to `done`, so that `close` can
// wait for them, and settles who speaks last: a `done` runs before close returns
// or never. Safe to call from any thread; `done` runs without the lock.
class InFlight {
 public:
  // Before requests are started. False: closed, start nothing.
  bool enter(std::size_t requests);
  // Around each `done`. False: given up on by `close`; keep the request for ever.
  bool begin_done();
  void end_done();

  bool closed() const;
  // Refuses further requests without waiting for the others.
  void refuse();
  // Refuses further requests if none is outstanding. False: some are.
  bool refuse_if_idle();
  // Refuses further requests and waits. Returns how many were given up on.
  std::size_t close(std::chrono::nanoseconds limit);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t requests_ = 0;
  std::size_t running_ = 0;  // inside `done`
  bool closed_ = false;
  bool given_up_ = false;
};

}  // namespace headpond
