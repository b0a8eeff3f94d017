#include "pipeline/shard_groups.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace headpond {

ShardCounts::ShardCounts(const Dataset& dataset) : shards_(*dataset.format().shards()) {
  if (!dataset.size_is_known()) return;
  const auto counts = dataset.format().shard_counts();
  first_samples_.resize(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), first_samples_.begin(), std::uint64_t{0});
}

void ShardCounts::add_to(ShardOrder& order) const {
  while (!order.complete()) {
    const auto shard = order.shard_at(order.next_slot());
    const auto count = shards_.count(shard);
    if (!count) return;
    order.add(*count, first_samples_.empty() ? Shards::number(shard, 0) : first_samples_[shard]);
  }
}

void ShardGroups::start(std::unique_ptr<ShardOrder> order, std::uint64_t position, bool hold) {
  order_ = std::move(order);
  hold_ = hold;
  present_ = wanted_stop_ = position;
  base_slot_ = order_->next_slot();
  look();
  if (!hold_) base_slot_ = order_->next_slot();  // what is known needs no look
}

ShardGroups::Gone ShardGroups::rest() {
  order_.reset();
  return {std::exchange(shards_, {}), std::exchange(groups_, {})};
}

ShardGroups::Gone ShardGroups::move_on(std::uint64_t from, std::uint64_t stop) {
  Gone gone;
  present_ = std::max(present_, from);
  wanted_stop_ = std::max(wanted_stop_, stop);
  while (!groups_.empty() && groups_.front()->range.stop <= present_) {
    const std::uint64_t stop_slot = groups_.front()->range.stop_slot;
    for (; !shards_.empty() && base_slot_ < stop_slot; ++base_slot_) {
      gone.shards.push_back(shards_.front());
      shards_.erase(shards_.begin());
    }
    gone.groups.push_back(groups_.front());
    groups_.erase(groups_.begin());
  }
  return gone;
}

bool ShardGroups::look() {
  if (order_ == nullptr) return false;
  counts_.add_to(*order_);
  while (!enough()) {
    const std::uint64_t start = groups_.empty() ? present_ : groups_.back()->range.stop;
    if (start >= order_->known()) break;
    auto group = std::make_shared<Group>();
    group->range = order_->group_of(start);
    groups_.push_back(std::move(group));
  }
  bool news = false;
  for (const auto& group : groups_) {
    if (group->ready || !is_ready(*group)) continue;
    group->ready = news = true;
    for (std::uint64_t slot = std::max(group->range.first_slot, base_slot_);
         slot < group->range.stop_slot; ++slot) {
      const StreamedShard& shard = *shards_[slot - base_slot_];
      if (shard.hold()) group->shards.push_back(shard.bytes());
    }
  }
  return news;
}

// Do the groups reach behind what is planned next, by one where they are held?
bool ShardGroups::enough() const {
  const std::size_t ahead = hold_ ? 1 : 0;
  return groups_.size() > ahead && groups_[groups_.size() - 1 - ahead]->range.stop >= wanted_stop_;
}

bool ShardGroups::is_ready(const Group& group) const {
  if (next_slot() < group.range.stop_slot) return false;
  for (std::uint64_t slot = std::max(group.range.first_slot, base_slot_);
       slot < group.range.stop_slot; ++slot) {
    if (shards_[slot - base_slot_]->state() != StreamedShard::State::done) return false;
  }
  return true;
}

bool ShardGroups::ready(std::uint64_t from, std::uint64_t stop) const {
  for (const auto& group : groups_) {
    if (from >= stop) break;
    if (group->range.start > from || from >= group->range.stop) continue;
    if (!group->ready) return false;
    from = group->range.stop;
  }
  return from >= stop;
}

std::vector<std::shared_ptr<const void>> ShardGroups::hold(std::uint64_t first,
                                                           std::uint64_t stop) const {
  std::vector<std::shared_ptr<const void>> held;
  for (const auto& group : groups_) {
    if (group->range.start < stop && first < group->range.stop) held.push_back(group);
  }
  return held;
}

bool ShardGroups::wants_another() const {
  // Indexed one after another, but for one ahead: none should be read that is not needed.
  if (!hold_ && next_slot() > order_->next_slot() + 1) return false;
  return next_slot() < (enough() ? groups_.back()->range.stop_slot : order_->shards());
}

std::uint32_t ShardGroups::next_shard() const {
  return static_cast<std::uint32_t>(order_->shard_at(next_slot()));
}

void ShardGroups::add(std::shared_ptr<StreamedShard> shard) { shards_.push_back(std::move(shard)); }

}  // namespace headpond
