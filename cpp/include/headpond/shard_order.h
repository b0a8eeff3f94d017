#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headpond/sampler.h"

namespace headpond {

// The order of one epoch over shards, built while their sample counts become known.
//
// The shards are permuted (mode `window`) or stand as they are (`none`); shard_at(slot) is
// the slot-th of the epoch. Positions run through the slots; they are cut into groups that
// hold at least `window` samples, and the samples of a group are permuted. A group ends with
// the shard that fills it, so it is known without the counts of later shards; the last one
// holds what is left. Without shuffling each shard is a group in its own order.
//
// Reading is safe from any thread while nobody adds.
class ShardOrder final : public EpochOrder {
 public:
  struct Group {
    std::uint64_t first_slot = 0;
    std::uint64_t stop_slot = 0;
    std::uint64_t start = 0;  // positions
    std::uint64_t stop = 0;
  };

  // Of `sampler` (mode none or window) for `shards` shards, from the group that starts at
  // `from` on: what lies before it is not needed.
  ShardOrder(const Sampler& sampler, std::uint64_t shards, std::uint64_t epoch,
             Sampler::GroupPlace from = {});

  std::uint64_t shards() const { return shards_.size(); }
  std::uint64_t shard_at(std::uint64_t slot) const { return shards_[slot]; }

  // The shard of slot next_slot() holds `count` samples, numbered from `first_sample`.
  void add(std::uint64_t count, std::uint64_t first_sample);
  std::uint64_t next_slot() const { return from_.first_shard + first_samples_.size(); }
  bool complete() const { return next_slot() == shards_.size(); }

  // Positions [first_position(), known()) lie in groups that are known whole.
  std::uint64_t first_position() const { return from_.cursor; }
  std::uint64_t known() const { return starts_[groups_.back()]; }
  // The group of a known position.
  Group group_of(std::uint64_t position) const;
  // Where `position` stands: its group, or {shards(), end} behind the last one of a complete order.
  Sampler::GroupPlace place_of(std::uint64_t position) const;

  void indices(std::uint64_t first, std::uint64_t stride,
               std::span<std::uint64_t> out) const override;

 private:
  Group group(std::size_t number) const;
  std::size_t number_of(std::uint64_t position) const;
  std::uint64_t sample_at(const Group& group, std::uint64_t position) const;

  std::uint64_t seed_;
  std::uint64_t epoch_;
  std::uint64_t window_;
  bool shuffled_;
  Sampler::GroupPlace from_;
  std::vector<std::uint64_t> shards_;         // by slot
  std::vector<std::uint64_t> starts_;         // per added slot, and the end
  std::vector<std::uint64_t> first_samples_;  // per added slot
  std::vector<std::size_t> groups_;           // the first added slot of each, and the end
};

}  // namespace headpond
