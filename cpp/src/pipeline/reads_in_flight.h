#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace headpond {

// The reads that a store has not given back, counted. Shared by their completions.
//
// Whoever destroys what completions use drains first. A read may be stuck (a kernel or a server
// that never answers): then the owner of what it uses is left to it. Safe from any thread.
class ReadsInFlight {
 public:
  void add(std::uint64_t reads = 1);
  // A read has come back, and uses nothing of the owner's any more. After the last one: what
  // drain() left to it, to be let go of with the completion's closure, for inside the completion
  // no store can be closed.
  [[nodiscard]] std::shared_ptr<const void> remove();
  std::uint64_t count() const;

  // Waits until none is in flight. False: some are at the deadline, and `owner` stays until the
  // last of them comes back. More reads are then counted by another one of these.
  bool drain(std::chrono::steady_clock::time_point deadline, std::shared_ptr<const void> owner);

 private:
  mutable std::mutex mutex_;
  std::condition_variable drained_;
  std::uint64_t count_ = 0;
  std::shared_ptr<const void> owner_;  // of what stuck reads use
};

}  // namespace headpond
