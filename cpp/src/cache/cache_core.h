#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/task_pool.h"
#include "cache/block_file.h"
#include "cache/block_handles.h"
#include "cache/cache_folder.h"
#include "cache/cache_health.h"
#include "cache/eviction.h"
#include "cache/fill.h"
#include "cache/fill_waits.h"
#include "cache/space.h"
#include "cache/use_file.h"
#include "headpond/block_cache.h"

namespace headpond {

// The counters of CacheCounters, each a relaxed atomic.
struct CacheCounts {
  std::atomic<std::uint64_t> hits, hit_bytes, joined, joined_bytes, missed, missed_bytes,
      fetched_bytes, past_bytes, published, stalled, failures;

  CacheCounters read() const {
    const auto of = [](const auto& count) { return count.load(std::memory_order_relaxed); };
    CacheCounters counters;
    counters.hits = of(hits);
    counters.hit_bytes = of(hit_bytes);
    counters.joined = of(joined);
    counters.joined_bytes = of(joined_bytes);
    counters.missed = of(missed);
    counters.missed_bytes = of(missed_bytes);
    counters.fetched_bytes = of(fetched_bytes);
    counters.past_bytes = of(past_bytes);
    counters.published = of(published);
    counters.stalled = of(stalled);
    counters.failures = of(failures);
    return counters;
  }
  static void add(std::atomic<std::uint64_t>& count, std::uint64_t amount = 1) {
    count.fetch_add(amount, std::memory_order_relaxed);
  }
};

// The block cache of a folder in this process: the table of blocks that are wanted
// (block_cache.cpp) and the steps by which each gets there (fill_steps.cpp).
//
// Steps of one fill run one at a time, on threads of the pool, because they block in system calls;
// sources and waiters are called without the lock.
class CacheCore final : public BlockCache, public std::enable_shared_from_this<CacheCore> {
 public:
  static constexpr unsigned kThreadsMax = 4;

  CacheCore(CacheOptions options, std::shared_ptr<CacheFolder> folder, std::shared_ptr<Clock> clock,
            std::shared_ptr<LogQueue> log)
      : options_(std::move(options)),
        folder_(std::move(folder)),
        clock_(std::move(clock)),
        log_(std::move(log)),
        health_(*clock_),
        uses_(folder_),
        pool_("hp-cache", kThreadsMax) {}

  // Once, before anything else. Errors: of the accounts' file.
  Result<void> start();

  bool read_now(const BlockKey& key, std::span<const Piece> pieces, Wait wait,
                const std::function<Block()>& describe) override;
  void read(BlockRead read) override;
  void cancel_stopped() override;
  UseFiles& uses() override { return uses_; }
  CacheCounters counters() const override;
  const CacheOptions& options() const override { return options_; }

 private:
  using FillPtr = std::shared_ptr<Fill>;
  using Lock = std::unique_lock<std::mutex>;

  std::shared_ptr<const PublishedBlock> find(const Block& block);
  // False: not in memory (Wait::never), or not to be had from this file.
  bool read_published(const PublishedBlock& block, std::span<const Piece> pieces, Wait wait);
  void trouble(const Error& error);
  // Counts what is there, in the background.
  void rescan_if_wanted();

  // The table. With the lock held:
  // Has the next step of a fill run.
  void schedule(Lock& lock, const FillPtr& fill);
  // Takes a fill out of the table; who comes later starts another.
  void leave(Lock& lock, const FillPtr& fill);
  // The oldest two always fit.
  bool take_memory(const FillPtr& fill);
  void release_memory(Lock& lock, const FillPtr& fill);
  void stop_waiting(const FillPtr& fill);
  // Ends the reads that are asked to stop.
  void sweep();

  // The steps, without the lock.
  void step(const FillPtr& fill);
  void look(const FillPtr& fill);
  void serve(const FillPtr& fill, const PublishedBlock& block);
  void acquire(const FillPtr& fill);
  void close_unused_handles();
  void wait_elsewhere(const FillPtr& fill, const FillStamp& stamp);
  void take_in_whole_cells(Fill& fill);
  void write_arrived(Fill& fill);
  void start_fetch(const FillPtr& fill);
  void fetch(const FillPtr& fill, ByteRange range, const std::shared_ptr<BlockSource>& source);
  void absorb(const FillPtr& fill);
  void absorb_part(Fill& fill, const Fill::Part& part);
  void give_covered(Fill& fill);
  void count_fetched(const BlockRead& read);
  void finish(const FillPtr& fill);
  void publish(Fill& fill);
  void drop_file(Fill& fill);
  void past(const FillPtr& fill);
  void past(BlockRead read);

  const CacheOptions options_;
  const std::shared_ptr<CacheFolder> folder_;
  const std::shared_ptr<Clock> clock_;
  const std::shared_ptr<LogQueue> log_;
  CacheHealth health_;
  CacheCounts counts_{};
  BlockHandles handles_;
  FillClaims claims_;
  UseFiles uses_;
  std::unique_ptr<Space> space_;
  std::unique_ptr<Eviction> eviction_;
  std::atomic<bool> rescanning_ = false;

  std::mutex mutex_;
  std::unordered_map<BlockKey, FillPtr> fills_;
  std::deque<FillPtr> queued_;  // for memory
  std::uint64_t memory_used_ = 0;
  std::size_t holders_ = 0;  // of memory
  bool sweeping_ = false;
  Clock::Time handles_looked_{};

  std::unique_ptr<FillWaits> waits_;
  TaskPool pool_;  // last: its tasks use the rest
};

}  // namespace headpond
