#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "headpond/result.h"

namespace headpond {

enum class ShuffleMode : std::uint8_t { none, full, window };
std::string_view name_of(ShuffleMode mode);

// The order of one epoch: position to sample index. Immutable; safe from any thread.
class EpochOrder {
 public:
  virtual ~EpochOrder() = default;
  // out[k] = sample at position first + k * stride. All positions < n.
  virtual void indices(std::uint64_t first, std::uint64_t stride,
                       std::span<std::uint64_t> out) const = 0;
};

class ShardOrder;

// A pure function (seed, epoch, position) to sample index. A value.
//
// `none` and `full` hold nothing per sample; `window` holds the shard counts.
// Version `kVersion` of the permutations is fixed by golden vectors and stands in
// the loader's state: it changes only with a new number.
class Sampler {
 public:
  static constexpr int kVersion = 1;

  static Sampler none(std::uint64_t n);
  // A keyed Feistel permutation of [0, n) with cycle walking; n is at most 2^63.
  static Sampler full(std::uint64_t n, std::uint64_t seed);
  // Shards are permuted, the sequence is cut into groups of at least `window`
  // samples, the samples of a group are permuted. A group ends with the shard that
  // fills it, so the last one holds what is left. Empty shards are allowed.
  static Sampler window(std::vector<std::uint64_t> shard_counts, std::uint64_t seed,
                        std::uint64_t window);

  // The same where the counts of shards are still to come: its order is a ShardOrder that
  // grows.
  static Sampler window_of_unknown(std::uint64_t seed, std::uint64_t window);

  // Format::kUnknownSize while it is not known.
  std::uint64_t size() const { return n_; }
  bool size_is_known() const;
  std::uint64_t seed() const { return seed_; }
  ShuffleMode mode() const { return mode_; }
  std::uint64_t window_samples() const { return window_; }

  // O(1); for `window` O(shards).
  std::shared_ptr<const EpochOrder> order(std::uint64_t epoch) const;

  // Window mode: the group that holds `position` of `epoch`: its place in the
  // shard order and the cursor at its start (kept in the state); behind the last
  // position {shards, size()}. O(shards). {0, 0} in the other modes.
  struct GroupPlace {
    std::uint64_t first_shard = 0;
    std::uint64_t cursor = 0;
    bool operator==(const GroupPlace&) const = default;
  };
  GroupPlace group_at(std::uint64_t epoch, std::uint64_t position) const;

 private:
  std::shared_ptr<const ShardOrder> shard_order(std::uint64_t epoch) const;
  Sampler(ShuffleMode mode, std::uint64_t n, std::uint64_t seed)
      : mode_(mode), n_(n), seed_(seed) {}
  ShuffleMode mode_;
  std::uint64_t n_;
  std::uint64_t seed_;
  std::uint64_t window_ = 0;
  std::shared_ptr<const std::vector<std::uint64_t>> shard_counts_;
};

// A counter-based random generator for augmentation: a function of (seed, epoch,
// sample index) only, so threads, ranks and prefetch never change a pixel.
class SampleRandom {
 public:
  SampleRandom(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample);
  std::uint64_t next();                      // 64 uniform bits
  double uniform(double low, double high);   // [low, high)
  std::uint64_t below(std::uint64_t bound);  // [0, bound), unbiased; bound > 0

 private:
  std::uint64_t state_;
};

}  // namespace headpond
