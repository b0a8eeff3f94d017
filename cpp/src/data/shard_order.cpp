#include "headpond/shard_order.h"

#include <algorithm>
#include <numeric>

#include "data/mix.h"
#include "data/permutation.h"

namespace headpond {

ShardOrder::ShardOrder(const Sampler& sampler, std::uint64_t shards, std::uint64_t epoch,
                       Sampler::GroupPlace from)
    : seed_(sampler.seed()),
      epoch_(epoch),
      window_(sampler.window_samples()),
      shuffled_(sampler.mode() == ShuffleMode::window),
      from_(from),
      shards_(shards),
      starts_{from.cursor},
      groups_{0} {
  if (!shuffled_) {
    std::iota(shards_.begin(), shards_.end(), std::uint64_t{0});
  } else if (shards > 0) {
    const std::uint64_t key = mixed_key(KeyPurpose::shard_order, seed_, epoch_, 0);
    Permutation(shards, key).map(0, 1, shards_);
  }
}

void ShardOrder::add(std::uint64_t count, std::uint64_t first_sample) {
  first_samples_.push_back(first_sample);
  starts_.push_back(starts_.back() + count);
  const bool filled = starts_.back() - known() >= std::max<std::uint64_t>(window_, 1);
  if (filled || complete()) groups_.push_back(first_samples_.size());
}

ShardOrder::Group ShardOrder::group(std::size_t number) const {
  const std::size_t first = groups_[number];
  const std::size_t stop = groups_[number + 1];
  return {from_.first_shard + first, from_.first_shard + stop, starts_[first], starts_[stop]};
}

// Empty shards make several slots start at one position: the last group that starts at or
// before `position` is the one that holds it.
std::size_t ShardOrder::number_of(std::uint64_t position) const {
  const auto after =
      std::upper_bound(groups_.begin(), groups_.end() - 1, position,
                       [this](std::uint64_t at, std::size_t slot) { return at < starts_[slot]; });
  return static_cast<std::size_t>(after - groups_.begin()) - 1;
}

ShardOrder::Group ShardOrder::group_of(std::uint64_t position) const {
  return group(number_of(position));
}

Sampler::GroupPlace ShardOrder::place_of(std::uint64_t position) const {
  if (position >= known()) return {next_slot(), known()};
  const Group group = group_of(position);
  return {group.first_slot, group.start};
}

void ShardOrder::indices(std::uint64_t first, std::uint64_t stride,
                         std::span<std::uint64_t> out) const {
  while (!out.empty()) {
    const Group group = group_of(first);
    std::size_t run = out.size();
    if (stride > 0) run = std::min<std::uint64_t>(run, (group.stop - first - 1) / stride + 1);
    const auto part = out.first(run);
    if (shuffled_) {
      // The group's place in the shard order is its number: known wherever a reader begins.
      const std::uint64_t key = mixed_key(KeyPurpose::group_order, seed_, epoch_, group.first_slot);
      Permutation(group.stop - group.start, key).map(first - group.start, stride, part);
    } else {
      for (std::size_t k = 0; k < run; ++k) part[k] = first - group.start + k * stride;
    }
    for (auto& index : part) index = sample_at(group, group.start + index);
    out = out.subspan(run);
    first += run * stride;
  }
}

std::uint64_t ShardOrder::sample_at(const Group& group, std::uint64_t position) const {
  const auto added = [&](std::uint64_t slot) {
    return starts_.begin() + static_cast<std::ptrdiff_t>(slot - from_.first_shard);
  };
  const auto after = std::upper_bound(added(group.first_slot), added(group.stop_slot), position);
  const auto slot = static_cast<std::size_t>(after - starts_.begin()) - 1;
  return first_samples_[slot] + (position - starts_[slot]);
}

}  // namespace headpond
