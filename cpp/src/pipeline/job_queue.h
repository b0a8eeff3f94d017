#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "pipeline/job.h"

namespace headpond {

// The batches in the making, in delivery order, and what is to be done for them next.
//
// A bounded number; all memory for it is there from begin() on, so that nothing throws on threads
// that have nobody to tell. Not locked: the prefetcher's lock guards it.
class JobQueue {
 public:
  // `bytes_max`: beyond it no batch is added, but the first two.
  explicit JobQueue(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}
  // Before a pass.
  void begin();
  // All of them, to be let go of without the lock.
  std::vector<std::shared_ptr<Job>> end();

  bool empty() const { return jobs_.empty(); }
  std::size_t size() const { return jobs_.size(); }
  const Job& oldest() const { return *jobs_.front(); }
  std::span<const std::shared_ptr<Job>> jobs() const { return jobs_; }
  std::size_t finished() const { return finished_; }

  bool takes_another() const;
  // Is there room for a good piece of work, not for one batch alone?
  bool has_room() const;

  // A job for the next batch, with the memory of one that was recycled.
  std::shared_ptr<Job> fresh();
  void recycle(std::shared_ptr<Job> job);

  // The job is planned and funded: it may be finished already, or have no slab yet.
  void push(const std::shared_ptr<Job>& job);
  // It has its slab now: its rows can be claimed.
  void can_be_filled(const std::shared_ptr<Job>& job);
  void finish(Job& job, Finished finished);
  std::shared_ptr<Job> pop();

  // Rows that nobody fills yet, of the oldest such batch.
  struct Chunk {
    std::shared_ptr<Job> job;
    std::uint32_t first = 0;
    std::uint32_t last = 0;
  };
  std::optional<Chunk> claim();

  // Records from storage are here for `rows`; `done`: the job's last row was done with it.
  void arrived(Job& job, std::span<const std::uint32_t> rows, bool done);
  struct Arrived {
    std::shared_ptr<Job> job;
    std::optional<std::uint32_t> row;  // none: the job is only to be finished
  };
  std::optional<Arrived> take_arrived();

  bool has_work() const { return arrived_ > 0 || !claimable_.empty(); }

 private:
  const std::uint64_t bytes_max_;
  std::vector<std::shared_ptr<Job>> jobs_;
  std::vector<std::shared_ptr<Job>> claimable_;  // those with unclaimed rows, in the same order
  std::vector<std::shared_ptr<Job>> spare_;
  std::uint64_t bytes_ = 0;
  std::size_t finished_ = 0;
  std::size_t arrived_ = 0;  // entries of all job.arrived
};

}  // namespace headpond
