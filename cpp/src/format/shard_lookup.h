#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace headpond {

// Where the n-th sample of a sequence of shards lies: its shard and its place there.
//
// Holds the shards' first samples and a table over the leading bits of the sample
// number, so that a look-up is a shift and a short search, without a division.
// A value; 12 to 20 bytes per shard.
class ShardLookup {
 public:
  struct Place {
    std::uint32_t shard;
    std::uint64_t row;
  };

  ShardLookup() : ShardLookup(std::vector<std::uint64_t>{}) {}

  // Samples of each shard; the sum must fit 63 bits. Empty shards are allowed.
  explicit ShardLookup(const std::vector<std::uint64_t>& counts) {
    starts_.reserve(counts.size() + 1);
    starts_.push_back(0);
    for (const std::uint64_t count : counts) starts_.push_back(starts_.back() + count);
    const std::uint64_t buckets_wanted = std::max<std::uint64_t>(1, counts.size());
    const std::uint64_t n = size();
    while ((n >> shift_) > buckets_wanted) ++shift_;
    const std::uint64_t buckets = (n >> shift_) + 1;
    first_.reserve(buckets + 1);
    std::uint32_t shard = 0;
    for (std::uint64_t bucket = 0; bucket < buckets; ++bucket) {
      while (shard + 1 < counts.size() && starts_[shard + 1] <= bucket << shift_) ++shard;
      first_.push_back(shard);
    }
    first_.push_back(counts.empty() ? 0 : static_cast<std::uint32_t>(counts.size() - 1));
  }

  std::uint64_t size() const { return starts_.back(); }
  std::uint64_t shards() const { return starts_.size() - 1; }
  std::uint64_t count(std::uint64_t shard) const { return starts_[shard + 1] - starts_[shard]; }
  std::vector<std::uint64_t> counts() const {
    std::vector<std::uint64_t> counts(shards());
    for (std::uint64_t shard = 0; shard < counts.size(); ++shard) counts[shard] = count(shard);
    return counts;
  }

  // sample < size().
  Place find(std::uint64_t sample) const {
    if (starts_.size() == 2) return {0, sample};
    const std::uint64_t bucket = sample >> shift_;
    const auto* low = starts_.data() + first_[bucket] + 1;
    const auto* high = starts_.data() + first_[bucket + 1] + 1;
    // The first end beyond the sample; usually the first or second of the bucket.
    while (low < high && high - low > 4) {
      const auto* middle = low + (high - low) / 2;
      if (*middle <= sample) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    while (*low <= sample) ++low;
    const auto shard = static_cast<std::uint32_t>(low - starts_.data() - 1);
    return {shard, sample - starts_[shard]};
  }

 private:
  std::vector<std::uint64_t> starts_;  // one more than shards
  std::vector<std::uint32_t>
      first_;  // shard of the first sample of each bucket, and the last shard
  unsigned shift_ = 0;
};

}  // namespace headpond
