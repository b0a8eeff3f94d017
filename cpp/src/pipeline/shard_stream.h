#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "headpond/byte_budget.h"
#include "headpond/dataset.h"
#include "headpond/log.h"
#include "headpond/sampler.h"
#include "headpond/shard_order.h"
#include "headpond/slab.h"
#include "headpond/stop_token.h"
#include "pipeline/held_shard.h"
#include "pipeline/reads_in_flight.h"
#include "pipeline/shard_groups.h"
#include "pipeline/streamed_shard.h"

namespace headpond {

// Reads the shards of an epoch as a whole, in its order: indexes those that are not known
// on the way, and keeps their bytes until the samples of their group are copied.
//
// Only the shards of the present group and the next are in flight. What does not fit into
// memory while its group is waited for is only indexed; its samples are read by range.
// Never blocks: CPU workers call work(), completions only note what has arrived.
// Safe from any thread. Lives until drain() has said that nothing is in flight.
class ShardStream {
 public:
  struct Setup {
    std::shared_ptr<const Dataset> dataset;
    std::shared_ptr<Store> store;
    ByteBudget* budget = nullptr;
    std::uint64_t held_bytes_max = 0;
    std::shared_ptr<SlabPool> buffers;
    std::shared_ptr<LogQueue> log;
    std::function<void()> wake;  // somebody should call work() or ready()
  };
  struct Counters {
    std::uint64_t bytes = 0;    // read from the store
    std::uint64_t dropped = 0;  // of them: of shards that did not fit, to be read again by range
  };

  explicit ShardStream(Setup setup);
  ~ShardStream();

  // Begins an epoch at a group; positions before it will not be asked for. What was before is
  // let go.
  void start(const Sampler& sampler, std::uint64_t epoch, Sampler::GroupPlace group);
  // The same from the epoch's start, but its shards are only indexed, as far as ready() asks.
  void start_indexing(const Sampler& sampler, std::uint64_t epoch);

  // The order as far as it is known. For the planner alone, who also calls ready().
  const std::shared_ptr<ShardOrder>& order() const { return planned_; }
  // Positions [from, stop) are planned next, and it matters whether there are more than `seen`.
  struct Need {
    std::uint64_t from = 0;
    std::uint64_t stop = 0;
    std::uint64_t seen = 0;
    bool starving = false;  // the consumer waits, and nothing else is in flight for it
  };
  // Are these samples known, and their bytes here (or to be read by range)? Groups that end
  // at or before `from` are let go.
  bool ready(const Need& need);
  // What keeps the groups of these positions in memory.
  std::vector<std::shared_ptr<const void>> hold(std::uint64_t first, std::uint64_t stop) const;

  // One piece of work; false when there is none now.
  bool work();
  // Why the first shard that is not here will not come; nothing while it may, or while
  // those before it are still on their way.
  std::optional<Error> error() const;
  // Nothing of the present epoch is wanted any more: its memory is let go (what hold()
  // gave keeps its own).
  void rest();
  const HeldShards& held() const { return held_; }
  Counters counters() const;
  std::string describe() const;

  void cancel();
  // After cancel(): waits until no read is in flight. False: one is at the deadline, and `owner`
  // stays until the last has come back.
  bool drain(std::chrono::steady_clock::time_point deadline, std::shared_ptr<const void> owner);

 private:
  using Lock = std::unique_lock<std::mutex>;
  // The reads between two drains.
  struct Run {
    std::uint64_t active = 0;  // not yet noted; under the stream's lock
    ReadsInFlight in_flight;
  };
  enum class Issued : std::uint8_t { yes, nothing_left, no_memory };

  void start(const Sampler& sampler, std::uint64_t epoch, Sampler::GroupPlace group, bool hold);
  bool index_some(Lock& lock);
  bool issue(Lock& lock);
  void ask_version(Lock& lock, std::shared_ptr<StreamedShard> shard);
  void begin(Lock& lock, std::shared_ptr<StreamedShard> shard);
  bool lies_in_memory(const StreamedShard& shard, const std::string& name) const;
  Issued read_block(Lock& lock, std::shared_ptr<StreamedShard> shard);
  std::optional<std::vector<ByteBudget::Credit>> take_credits(std::uint64_t bytes, bool must);
  bool is_stuck() const;
  template <class Note>
  void ended(Run& run, std::shared_ptr<StreamedShard>& shard, Note note);
  void note_version(StreamedShard& shard, Result<ReadOutcome> outcome);
  void note_block(StreamedShard& shard, std::uint64_t block, HeldShard::Block memory,
                  Result<ReadOutcome> outcome, std::vector<HeldShard::Block>& dropped);
  void fail(StreamedShard& shard, Error error);
  void stop_holding(StreamedShard& shard);
  void settle(StreamedShard& shard, std::vector<HeldShard::Block>& dropped);
  void look();

  const Setup setup_;
  const Shards& shards_;
  const ShardCounts counts_;
  const std::uint64_t block_bytes_;
  HeldShards held_;
  std::shared_ptr<ByteBudget> held_budget_;
  std::shared_ptr<ShardOrder> planned_;

  mutable std::mutex mutex_;  // everything below
  ShardGroups groups_;
  std::shared_ptr<Run> run_;
  bool starving_ = false;
  bool cancelled_ = false;
  StopSource stop_;
  Counters read_;
};

}  // namespace headpond
