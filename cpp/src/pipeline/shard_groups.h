#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headpond/dataset.h"
#include "headpond/sampler.h"
#include "headpond/shard_order.h"
#include "pipeline/streamed_shard.h"

namespace headpond {

// What is known of the sizes of a dataset's shards. Immutable, but more may become known.
class ShardCounts {
 public:
  explicit ShardCounts(const Dataset& dataset);
  // Adds to the order what is known of the slots that come next in it.
  void add_to(ShardOrder& order) const;

 private:
  const Shards& shards_;
  std::vector<std::uint64_t> first_samples_;  // by shard, where all counts were known at first
};

// The part of an epoch's order that is in memory or on its way there: the groups that are planned
// now and the next one, and the shards of all of them, slot by slot.
// Not locked: its stream's lock guards it.
class ShardGroups {
 public:
  // Shards whose samples are mixed; alive as long as somebody copies from them.
  struct Group {
    ShardOrder::Group range;
    std::vector<std::shared_ptr<HeldShard>> shards;  // those that are held, once it is ready
    bool ready = false;
  };

  explicit ShardGroups(const ShardCounts& counts) : counts_(counts) {}

  // Begins an epoch at a position, the start of the order. Without `hold` its shards are only to
  // be indexed, and no group ahead of those that are planned.
  void start(std::unique_ptr<ShardOrder> order, std::uint64_t position, bool hold);
  bool started() const { return order_ != nullptr; }
  // Nothing is wanted any more. What it held is to be let go of without the lock.
  struct Gone {
    std::vector<std::shared_ptr<StreamedShard>> shards;
    std::vector<std::shared_ptr<Group>> groups;
    bool empty() const { return shards.empty() && groups.empty(); }
  };
  Gone rest();

  // Positions [from, stop) are planned next: takes out the groups that end at or before `from`.
  Gone move_on(std::uint64_t from, std::uint64_t stop);
  // Looks at counts and shards again. True: a group has become ready.
  bool look();
  // Are all these positions in groups that are ready?
  bool ready(std::uint64_t from, std::uint64_t stop) const;
  // The groups of these positions.
  std::vector<std::shared_ptr<const void>> hold(std::uint64_t first, std::uint64_t stop) const;

  const std::vector<std::shared_ptr<StreamedShard>>& shards() const { return shards_; }
  // Is the shard of another slot wanted, and which one? Only where one is.
  bool wants_another() const;
  std::uint32_t next_shard() const;
  bool are_held() const { return hold_; }
  void add(std::shared_ptr<StreamedShard> shard);

 private:
  std::uint64_t next_slot() const { return base_slot_ + shards_.size(); }
  bool enough() const;
  bool is_ready(const Group& group) const;

  const ShardCounts& counts_;
  std::unique_ptr<ShardOrder> order_;
  bool hold_ = true;
  std::uint64_t present_ = 0;      // the position that is planned next
  std::uint64_t wanted_stop_ = 0;  // and the one behind the last that is
  std::uint64_t base_slot_ = 0;    // of shards_.front()
  std::vector<std::shared_ptr<StreamedShard>> shards_;
  std::vector<std::shared_ptr<Group>> groups_;
};

}  // namespace headpond
