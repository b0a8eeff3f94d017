#pragma once

#include <chrono>
#include <vector>

#include "io/local_files.h"

namespace headpond {

// What carries out cold reads: the ring or the pool. Safe to call from any thread.
class Backend {
 public:
  virtual ~Backend() = default;
  // Starts the reads and returns at once; each is finished exactly once.
  virtual void submit(std::vector<LocalRead> reads) = 0;
  // Finishes queued reads that are stopped, without waiting for those under way.
  virtual void cancel_queued() = 0;
  // After the stores are closed: ends the threads. One that the kernel does not
  // give back within `limit` is left to it; returns how many those are.
  virtual std::size_t stop(std::chrono::nanoseconds limit) = 0;
  virtual bool fixed_buffers() const { return false; }
};

}  // namespace headpond
