#include "headpond/sampler.h"

#include <algorithm>
#include <array>
#include <utility>

#include "data/mix.h"
#include "data/permutation.h"

namespace headpond {
namespace {

class PlainOrder final : public EpochOrder {
 public:
  void indices(std::uint64_t first, std::uint64_t stride,
               std::span<std::uint64_t> out) const override {
    for (std::size_t k = 0; k < out.size(); ++k) out[k] = first + k * stride;
  }
};

class FullOrder final : public EpochOrder {
 public:
  FullOrder(std::uint64_t n, std::uint64_t key) : permutation_(n, key) {}

  void indices(std::uint64_t first, std::uint64_t stride,
               std::span<std::uint64_t> out) const override {
    permutation_.map(first, stride, out);
  }

 private:
  Permutation permutation_;
};

// The shards of an epoch in their order, cut into groups.
//
// Positions, before the samples of a group are permuted, run through the shards
// in that order: slot s holds the positions starts_[s] to starts_[s + 1]. A group
// ends with the shard that fills its window, so it is known without the counts of
// later shards; the last one holds what is left.
class WindowOrder final : public EpochOrder {
 public:
  WindowOrder(const std::vector<std::uint64_t>& counts, std::uint64_t seed, std::uint64_t epoch,
              std::uint64_t window)
      : seed_(seed), epoch_(epoch) {
    const std::size_t shards = counts.size();
    std::vector<std::uint64_t> slots(shards);
    if (shards > 0) {
      const std::uint64_t key = mixed_key(KeyPurpose::shard_order, seed, epoch, 0);
      Permutation(shards, key).map(0, 1, slots);
    }

    std::vector<std::uint64_t> sample_starts(shards);
    std::uint64_t samples = 0;
    for (std::size_t shard = 0; shard < shards; ++shard) {
      sample_starts[shard] = samples;
      samples += counts[shard];
    }

    starts_.reserve(shards + 1);
    first_samples_.reserve(shards);
    starts_.push_back(0);
    std::uint64_t group_start = 0;
    for (std::size_t slot = 0; slot < shards; ++slot) {
      const std::uint64_t start = starts_.back();
      if (slot == 0 || start - group_start >= window) {
        groups_.push_back(slot);
        group_start = start;
      }
      first_samples_.push_back(sample_starts[slots[slot]]);
      starts_.push_back(start + counts[slots[slot]]);
    }
    groups_.push_back(shards);
  }

  void indices(std::uint64_t first, std::uint64_t stride,
               std::span<std::uint64_t> out) const override {
    while (!out.empty()) {
      const std::size_t group = group_of(first);
      const std::uint64_t start = starts_[groups_[group]];
      const std::uint64_t stop = starts_[groups_[group + 1]];
      std::size_t run = out.size();
      if (stride > 0) run = std::min<std::uint64_t>(run, (stop - first - 1) / stride + 1);

      const auto part = out.first(run);
      const std::uint64_t key = mixed_key(KeyPurpose::group_order, seed_, epoch_, group);
      Permutation(stop - start, key).map(first - start, stride, part);
      for (auto& index : part) index = sample_at(group, start + index);

      out = out.subspan(run);
      first += run * stride;
    }
  }

  Sampler::GroupPlace place_of(std::uint64_t position) const {
    if (position >= starts_.back()) return {first_samples_.size(), starts_.back()};
    const std::size_t slot = groups_[group_of(position)];
    return {slot, starts_[slot]};
  }

 private:
  // Empty shards make several slots start at one position: the last group that
  // starts at or before `position` is the one that holds it.
  std::size_t group_of(std::uint64_t position) const {
    const auto after =
        std::upper_bound(groups_.begin(), groups_.end() - 1, position,
                         [this](std::uint64_t at, std::size_t slot) { return at < starts_[slot]; });
    return static_cast<std::size_t>(after - groups_.begin()) - 1;
  }

  std::uint64_t sample_at(std::size_t group, std::uint64_t position) const {
    const auto from = starts_.begin() + static_cast<std::ptrdiff_t>(groups_[group]);
    const auto to = starts_.begin() + static_cast<std::ptrdiff_t>(groups_[group + 1]);
    const auto after = std::upper_bound(from, to, position);
    const auto slot = static_cast<std::size_t>(after - starts_.begin()) - 1;
    return first_samples_[slot] + (position - starts_[slot]);
  }

  std::uint64_t seed_;
  std::uint64_t epoch_;
  std::vector<std::uint64_t> starts_;         // per slot, and the end
  std::vector<std::uint64_t> first_samples_;  // per slot: index of its shard's first sample
  std::vector<std::size_t> groups_;           // the first slot of each, and the number of slots
};

}  // namespace

std::string_view name_of(ShuffleMode mode) {
  static constexpr std::array<std::string_view, 3> kNames{"none", "full", "window"};
  return kNames[static_cast<std::size_t>(mode)];
}

Sampler Sampler::none(std::uint64_t n) { return Sampler(ShuffleMode::none, n, 0); }

Sampler Sampler::full(std::uint64_t n, std::uint64_t seed) {
  return Sampler(ShuffleMode::full, n, seed);
}

Sampler Sampler::window(std::vector<std::uint64_t> shard_counts, std::uint64_t seed,
                        std::uint64_t window) {
  std::uint64_t n = 0;
  for (const std::uint64_t count : shard_counts) n += count;
  Sampler sampler(ShuffleMode::window, n, seed);
  sampler.window_ = window;
  sampler.shard_counts_ =
      std::make_shared<const std::vector<std::uint64_t>>(std::move(shard_counts));
  return sampler;
}

std::shared_ptr<const EpochOrder> Sampler::order(std::uint64_t epoch) const {
  if (mode_ == ShuffleMode::window) {
    return std::make_shared<WindowOrder>(*shard_counts_, seed_, epoch, window_);
  }
  if (mode_ == ShuffleMode::full && n_ > 0) {
    return std::make_shared<FullOrder>(n_, mixed_key(KeyPurpose::full_order, seed_, epoch, 0));
  }
  return std::make_shared<PlainOrder>();
}

Sampler::GroupPlace Sampler::group_at(std::uint64_t epoch, std::uint64_t position) const {
  if (mode_ != ShuffleMode::window) return {};
  return WindowOrder(*shard_counts_, seed_, epoch, window_).place_of(position);
}

}  // namespace headpond
