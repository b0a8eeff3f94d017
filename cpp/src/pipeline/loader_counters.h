#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "headpond/prefetcher.h"
#include "headpond/statistics.h"
#include "pipeline/job.h"

namespace headpond {

// What a loader's report says: counts of what is handed out, what was waited for, the errors of
// the epoch and their quota. Not locked: the prefetcher's lock guards it.
class LoaderCounters {
 public:
  LoaderCounters(OnError on_error, std::uint64_t max_errors)
      : on_error_(on_error), max_errors_(max_errors) {}

  // The first request of all; later ones change nothing.
  void start();
  // Errors of other epochs are forgotten.
  void begin_epoch(std::uint64_t epoch);
  // A consumer has waited.
  void waited(double WaitedFor::*kind, double seconds);
  // The batch of a finished job, counted; with more errors than allowed it becomes one itself.
  Batch hand_out(Job& job);

  LoaderStatistics read() const;

 private:
  struct Faults {
    std::uint64_t minor = 0;
    std::uint64_t major = 0;
    static Faults now();
  };
  void add(const Job& job);
  void refuse_further_errors(Batch& batch) const;

  const OnError on_error_;
  const std::uint64_t max_errors_;
  LoaderStatistics counts_;
  std::optional<std::chrono::steady_clock::time_point> started_;
  std::chrono::steady_clock::time_point last_handed_out_{};
  Faults faults_;
  std::uint64_t epoch_ = 0;
  std::vector<SampleError> errors_;
};

}  // namespace headpond
