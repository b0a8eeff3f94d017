#include "headpond/sampler.h"

#include <array>
#include <numeric>
#include <utility>

#include "data/mix.h"
#include "data/permutation.h"
#include "headpond/format.h"
#include "headpond/shard_order.h"

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

Sampler Sampler::window_of_unknown(std::uint64_t seed, std::uint64_t window) {
  Sampler sampler(ShuffleMode::window, Format::kUnknownSize, seed);
  sampler.window_ = window;
  return sampler;
}

bool Sampler::size_is_known() const { return n_ != Format::kUnknownSize; }

std::shared_ptr<const EpochOrder> Sampler::order(std::uint64_t epoch) const {
  if (mode_ == ShuffleMode::window) return shard_order(epoch);
  if (mode_ == ShuffleMode::full && n_ > 0) {
    return std::make_shared<FullOrder>(n_, mixed_key(KeyPurpose::full_order, seed_, epoch, 0));
  }
  return std::make_shared<PlainOrder>();
}

std::shared_ptr<const ShardOrder> Sampler::shard_order(std::uint64_t epoch) const {
  const std::vector<std::uint64_t>& counts = *shard_counts_;
  std::vector<std::uint64_t> first_samples(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), first_samples.begin(), std::uint64_t{0});
  auto order = std::make_shared<ShardOrder>(*this, counts.size(), epoch);
  while (!order->complete()) {
    const std::uint64_t shard = order->shard_at(order->next_slot());
    order->add(counts[shard], first_samples[shard]);
  }
  return order;
}

Sampler::GroupPlace Sampler::group_at(std::uint64_t epoch, std::uint64_t position) const {
  if (mode_ != ShuffleMode::window) return {};
  return shard_order(epoch)->place_of(position);
}

}  // namespace headpond
