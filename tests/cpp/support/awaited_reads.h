#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "headpond/store.h"

namespace headpond {

// Waits for reads that are under way. Outlives them.
class AwaitedReads {
 public:
  // Takes the request's `done`.
  void add(ReadRequest& request) {
    const std::lock_guard lock(mutex_);
    const std::size_t index = outcomes_.size();
    outcomes_.emplace_back();
    request.done = [this, index](Result<ReadOutcome> outcome) {
      const std::lock_guard lock(mutex_);
      outcomes_[index] = std::move(outcome);
      ++done_;
      changed_.notify_all();
    };
  }

  // In the order of `add`.
  std::vector<Result<ReadOutcome>> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ == outcomes_.size(); });
    std::vector<Result<ReadOutcome>> outcomes;
    for (auto& outcome : outcomes_) outcomes.push_back(*std::move(outcome));
    return outcomes;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<Result<ReadOutcome>>> outcomes_;
  std::size_t done_ = 0;
};

}  // namespace headpond
