#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
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

  // Begins an epoch at a group: positions before it will not be asked for, but (`whole`)
  // the order is to know them too. What was before is let go.
  void start(const Sampler& sampler, std::uint64_t epoch, Sampler::GroupPlace group, bool whole);

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
  // After cancel(): waits until no read is in flight; false: one is after the limit.
  bool drain(std::chrono::milliseconds limit);

 private:
  struct Entry;
  struct Group;
  using Lock = std::unique_lock<std::mutex>;

  bool index_some(Lock& lock);
  bool issue(Lock& lock);
  void make_entry();
  std::uint64_t slots_wanted() const;
  void ask_version(Lock& lock, const std::shared_ptr<Entry>& entry);
  void begin(Lock& lock, const std::shared_ptr<Entry>& entry);
  enum class Issued : std::uint8_t { yes, nothing_left, no_memory };
  bool is_stuck() const;
  Issued read_block(Lock& lock, const std::shared_ptr<Entry>& entry);
  std::optional<std::vector<ByteBudget::Credit>> take_credits(std::uint64_t bytes, bool must);
  void fail(Entry& entry, Error error);
  void arrived(std::shared_ptr<Entry> entry, std::uint64_t block, std::shared_ptr<Slab> memory,
               std::vector<ByteBudget::Credit> credits, Result<ReadOutcome> outcome);
  void stop_holding(Entry& entry);
  void settle(const std::shared_ptr<Entry>& entry, std::vector<HeldShard::Block>& dropped);
  void learn_counts();
  void add_known(ShardOrder& order) const;
  std::shared_ptr<Group> group_at(std::uint64_t position) const;
  void mark_ready_groups();
  bool is_ready(const Group& group) const;
  bool enough_groups() const;
  bool lies_in_memory(const Entry& entry, const std::string& name) const;
  void finish_in_flight();

  const Setup setup_;
  const Shards& shards_;
  const std::uint64_t block_bytes_;
  std::vector<std::uint64_t> first_samples_;  // by shard, where all counts were known at first
  HeldShards held_;
  std::shared_ptr<ByteBudget> held_budget_;
  std::shared_ptr<ShardOrder> planned_;

  mutable std::mutex mutex_;  // everything below
  std::condition_variable drained_;
  std::shared_ptr<ShardOrder> order_;
  std::uint64_t hold_from_slot_ = 0;  // those before it are only indexed
  std::uint64_t present_ = 0;         // the position that is planned next
  std::uint64_t wanted_stop_ = 0;     // and the one behind the last that is
  std::uint64_t base_slot_ = 0;       // of entries_.front()
  std::deque<std::shared_ptr<Entry>> entries_;
  std::deque<std::shared_ptr<Group>> groups_;  // the present ones and the next, if known
  std::uint64_t in_flight_ = 0;
  bool starving_ = false;
  bool cancelled_ = false;
  StopSource stop_;
  Counters counters_;
};

}  // namespace headpond
