#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "headpond/prefetcher.h"
#include "headpond/sampler.h"
#include "headpond/shard_order.h"
#include "headpond/steps.h"
#include "pipeline/job.h"
#include "pipeline/shard_stream.h"

namespace headpond {

// The positions of an epoch that is entered late, and those at its start that padding takes.
class WrappingOrder final : public EpochOrder {
 public:
  WrappingOrder(std::shared_ptr<const ShardOrder> head, std::shared_ptr<const ShardOrder> rest)
      : head_(std::move(head)), rest_(std::move(rest)) {}
  void indices(std::uint64_t first, std::uint64_t stride,
               std::span<std::uint64_t> out) const override {
    const EpochOrder& order = first < rest_->first_position() ? *head_ : *rest_;
    order.indices(first, stride, out);
  }

 private:
  std::shared_ptr<const ShardOrder> head_;
  std::shared_ptr<const ShardOrder> rest_;
};

// Where planning stands: the steps of epochs, one after another without an end.
//
// With a shard stream the order is known as far as the stream has come, and how many
// samples there are only at the epoch's end.
class StepStream {
 public:
  // `shards` may be null; `group` is the one that holds `cursor`.
  void start(const LoaderSpec& spec, std::shared_ptr<ShardStream> shards, std::uint64_t epoch,
             std::uint64_t cursor, Sampler::GroupPlace group) {
    shards_ = std::move(shards);
    steps_ = spec.steps;
    head_ = nullptr;
    n_is_known_ = spec.sampler.size_is_known();
    epoch_ = epoch;
    cursor_ = cursor;
    group_ = group;
    order_ = nullptr;
    if (!n_is_known_) steps_.n = kMany;
    done_ = !steps_.at(0);  // too few samples for any batch
    skip_finished_epoch();
  }
  void stop() { done_ = true; }
  bool done() const { return done_; }
  // Of the next step.
  std::uint64_t epoch() const { return epoch_; }

  // Is the next step known, and what it reads there? False also when the epoch turned out
  // to be over. `starving`: nothing else is in flight for a consumer that waits.
  bool ready(const Sampler& sampler, bool starving) {
    if (shards_ == nullptr) return true;
    if (order_ == nullptr && !begin_epoch(sampler, starving)) return false;
    const std::uint64_t all = steps_.world * steps_.batch;
    const bool is =
        shards_->ready({cursor_, cursor_ + all, cursor_ + all + least_step() - 1, starving});
    if (n_is_known_ || !shards_->order()->complete()) return is;
    steps_.n = shards_->order()->known();
    if (!steps_.at(0)) done_ = true;
    if (steps_.at(cursor_)) return is;
    skip_finished_epoch();
    return false;
  }

  // The next step; not to be called when done, nor before it is ready.
  void take(const Sampler& sampler, Job& job, std::shared_ptr<const EpochOrder>& order) {
    if (order_ == nullptr) order_ = sampler.order(epoch_);
    job.epoch = epoch_;
    job.steps = steps_;
    job.step = *steps_.at(cursor_);
    order = order_;
    cursor_ = job.step.next;
    job.last = !steps_.at(cursor_).has_value();
    if (shards_ != nullptr) {
      job.held = shards_->hold(job.step.cursor, job.step.next);
      job.group = shards_->order()->place_of(cursor_);
    }
    skip_finished_epoch();
  }

 private:
  static constexpr std::uint64_t kMany = std::uint64_t{1} << 62;

  // How many positions make another step.
  std::uint64_t least_step() const {
    if (steps_.drop_last) return steps_.world * steps_.batch;
    return steps_.uneven == Uneven::drop ? steps_.world : 1;
  }
  // The last step may take rows of the epoch's start. Where the epoch is entered behind it, the
  // samples there are to be known first, and no others before the cursor.
  bool begin_epoch(const Sampler& sampler, bool starving) {
    const bool wraps = steps_.world > 1 && steps_.uneven == Uneven::pad && !steps_.drop_last;
    if (wraps && group_.first_shard > 0) {
      if (head_ == nullptr) {
        shards_->start_indexing(sampler, epoch_);
        head_ = shards_->order();
      }
      const std::uint64_t rows = steps_.world - 1;
      if (!shards_->ready({0, rows, rows - 1, starving})) return false;
    }
    shards_->start(sampler, epoch_, group_);
    order_ = shards_->order();
    if (head_ != nullptr)
      order_ = std::make_shared<WrappingOrder>(std::move(head_), shards_->order());
    head_ = nullptr;
    return true;
  }

  void skip_finished_epoch() {
    if (done_ || steps_.at(cursor_)) return;
    ++epoch_;
    cursor_ = 0;
    group_ = {};
    order_ = head_ = nullptr;
    if (!n_is_known_) steps_.n = kMany;
    if (shards_ != nullptr) shards_->rest();
  }

  std::shared_ptr<ShardStream> shards_;
  Steps steps_;
  bool n_is_known_ = true;
  std::uint64_t epoch_ = 0;
  std::uint64_t cursor_ = 0;
  Sampler::GroupPlace group_;
  bool done_ = true;
  std::shared_ptr<const EpochOrder> order_;
  std::shared_ptr<const ShardOrder> head_;  // while the epoch's start becomes known
};

}  // namespace headpond
