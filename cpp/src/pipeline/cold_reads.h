#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "headpond/slab.h"
#include "headpond/store.h"
#include "pipeline/job.h"
#include "pipeline/reads_in_flight.h"
#include "pipeline/recipe.h"

namespace headpond {

// One record of one row that is not in memory.
struct ColdRecord {
  std::uint32_t row = 0;
  std::uint32_t field = 0;  // of the recipe
};

// Brings the cold records of batches from the store: merges neighbours into one read, gives each
// read its memory, asks, and tells what came. The one place where a batch becomes requests.
// Never blocks; safe from any thread.
class ColdReads {
 public:
  // On a thread of the store, so it must not block, nor throw. All records of these `rows` are
  // in buffers (or failed), to be decoded or copied; `whole` more rows are done as they are.
  using Arrived = std::function<void(const std::shared_ptr<Job>& job,
                                     std::span<const std::uint32_t> rows, std::uint32_t whole)>;

  ColdReads(std::shared_ptr<const Recipe> recipe, std::shared_ptr<Store> store,
            std::shared_ptr<SlabPool> buffers, Arrived arrived);

  // The reads for records of rows whose other records are settled; sorts them. Asks for nothing
  // yet, and what it throws leaves nothing behind but job.cold of those rows. Afterwards
  // job.cold says which rows wait; records without memory for a buffer have failed.
  std::vector<ReadRequest> plan(const std::shared_ptr<Job>& job, std::span<ColdRecord> records);
  void start(Job& job, std::vector<ReadRequest> requests);

  // Cancels what is in flight. Later reads are cancelled too, up to begin().
  void cancel();
  void begin();
  // After cancel(): waits until nothing is in flight. False: `owner` stays until it is.
  bool drain(std::chrono::steady_clock::time_point deadline, std::shared_ptr<const void> owner);

 private:
  struct Read;
  // The reads between two drains.
  struct Run {
    StopSource stop;
    ReadsInFlight in_flight;
  };

  std::shared_ptr<Run> run() const;
  std::vector<Read> merge(Job& job, std::span<ColdRecord> records) const;
  bool place(Job& job, Read& read) const;
  std::vector<ReadRequest> request(const std::shared_ptr<Job>& job, const std::shared_ptr<Run>& run,
                                   std::vector<Read> reads);
  void begin_reads(Run& run, Job& job, std::vector<ReadRequest> requests);
  std::vector<Read> split(const Job& job, const Read& together) const;
  std::shared_ptr<const void> ended(const std::shared_ptr<Run>& run, std::shared_ptr<Job> job,
                                    Read& read, const Result<ReadOutcome>& result);
  std::optional<Error> judge(const std::shared_ptr<Run>& run, const std::shared_ptr<Job>& job,
                             const Read& read, const Result<ReadOutcome>& result);
  void settle(const std::shared_ptr<Job>& job, Read& read, const std::optional<Error>& error) const;

  const std::shared_ptr<const Recipe> recipe_;
  const std::shared_ptr<Store> store_;
  const std::shared_ptr<SlabPool> buffers_;
  const Arrived arrived_;

  mutable std::mutex mutex_;
  std::shared_ptr<Run> run_;
};

}  // namespace headpond
