#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headpond/prefetcher.h"
#include "pipeline/batch_planner.h"
#include "pipeline/cold_reads.h"
#include "pipeline/job_queue.h"
#include "pipeline/loader_counters.h"
#include "pipeline/recipe.h"
#include "pipeline/row_reader.h"
#include "pipeline/scheduler.h"
#include "pipeline/step_stream.h"
#include "pipeline/use_plan.h"

namespace headpond {

// Batches below this are small: a sleeping consumer is woken for several at once, for a wake-up
// costs as much as making one.
inline constexpr std::uint64_t kSmallBatchBytes = std::uint64_t{1} << 20;

// The prefetcher: the consumer's side (prefetcher.cpp) takes finished batches in order, the
// workers' side (prefetch_work.cpp) makes them, piece by piece.
//
// One lock guards the queue of batches between the two. No store is called while it is held; the
// locks of shard stream, budget and scheduler may be taken inside, never the other way round.
class PrefetchCore final : public Prefetcher,
                           public WorkSource,
                           public std::enable_shared_from_this<PrefetchCore> {
 public:
  PrefetchCore(std::shared_ptr<Engine> engine, std::shared_ptr<const Recipe> recipe,
               std::shared_ptr<Store> store);

  Result<void> seek(std::uint64_t epoch, std::uint64_t cursor, std::uint64_t epochs,
                    Sampler::GroupPlace group) override;
  void go_on(std::uint64_t epochs) override;
  std::optional<Batch> try_next() override;
  void wait(std::uint32_t timeout_ms) override;
  bool finished() const override;
  std::vector<Wanted> wanted() override;
  void provide(std::uint64_t ticket, std::shared_ptr<Slab> slab) override;
  std::vector<Field> output_fields() const override;
  LoaderStatistics statistics() const override;
  std::string describe_wait() const override;
  void stop() override;

  bool work(Scratch& scratch) override;
  void workers_gone() override { fail(Error(ErrorCode::closed, "the engine was closed")); }

 private:
  // The consumer's side.
  Result<void> start(std::unique_lock<std::mutex>& lock);
  // Cancels everything and waits until nothing of it runs any more. Completions of stuck reads may
  // still come, and find this here until the last one.
  void halt();
  // Has the last batch of the pass been taken?
  bool pass_is_over() const;
  // Is there anything a consumer can do now?
  bool something_to_take() const;
  double WaitedFor::*waiting_for() const;
  static bool lacks_memory(const Job& job) { return job.slab == nullptr && !job.finished; }
  // Of the next pass?
  bool is_ahead(const Job& job) const { return job.epoch >= pass_stop_; }

  // The workers' side.
  // Ends the pass with an error outside of the order.
  void fail(Error error);
  bool work_once(Scratch& scratch);
  // Wakes a worker if there is work for it; that one does the same.
  void unlock_and_call_help(std::unique_lock<std::mutex>& lock);
  // Two batches of the next pass are made, and no more before it begins.
  bool is_ahead_enough() const;
  // Of the next step; the stream wakes a worker when that may have changed.
  bool shards_are_ready();
  // Plans the next batch; one worker at a time, so that credits are taken in order.
  bool plan(std::unique_lock<std::mutex>& lock);
  // The next batch's place in the order.
  std::shared_ptr<Job> begin_job(std::shared_ptr<const EpochOrder>& order);
  void fill(std::shared_ptr<Job> job, std::uint32_t first, std::uint32_t last, Scratch& scratch);
  // Rows whose reads have not begun fail.
  void give_up(Job& job, std::uint32_t first, std::uint32_t last, const Error& error);
  // On a thread of the store.
  void arrived(const std::shared_ptr<Job>& job, std::span<const std::uint32_t> rows,
               std::uint32_t whole);
  void complete(std::shared_ptr<Job> job, std::uint32_t rows);
  void finish_job(std::shared_ptr<Job> job);
  // Should a worker wake the consumer for what has just been finished?
  bool worth_waking() const;

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<const Recipe> recipe_;
  const std::shared_ptr<Store> store_;
  const std::shared_ptr<SlabPool> buffers_;  // of records on their way
  const BatchPlanner planner_;
  const std::shared_ptr<ShardStream> shards_;  // null: records are read by range
  const std::shared_ptr<UsePlan> uses_;        // null: no cache, or nothing to tell it
  const RowReader reader_;
  ColdReads cold_;

  mutable std::mutex mutex_;  // everything below
  std::condition_variable consumer_;
  StepStream stream_;
  JobQueue queue_;
  LoaderCounters counters_;
  std::shared_ptr<Job> unfunded_;  // planned, waiting for the budget
  std::uint64_t next_ticket_ = 0;
  std::uint64_t run_ = 0;  // counts seeks: what an earlier one left behind is not for this one
  std::uint64_t pass_stop_ = 0;      // the epoch that is behind the pass
  std::uint64_t planned_epoch_ = 0;  // of the batch that is being planned
  std::uint64_t releasing_ = 0;      // batches taken whose credit is on its way back
  bool planning_ = false;
  bool worker_wants_wake_ = false;
  bool blocked_ = false;  // planning stopped at the prefetch limit
  unsigned consumers_waiting_ = 0;
  bool attached_ = false;
  bool halting_ = false;
  bool stopped_ = false;
  std::optional<Error> failure_;
};

}  // namespace headpond
