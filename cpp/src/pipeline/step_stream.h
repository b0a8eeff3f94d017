#pragma once

#include <cstdint>
#include <memory>

#include "headpond/prefetcher.h"
#include "headpond/sampler.h"
#include "headpond/steps.h"
#include "pipeline/job.h"

namespace headpond {

// Where planning stands: the steps of epochs, one after another. A value.
class StepStream {
 public:
  void start(const LoaderSpec& spec, std::uint64_t epoch, std::uint64_t cursor,
             std::uint64_t epochs) {
    steps_ = spec.steps;
    epoch_ = epoch;
    cursor_ = cursor;
    epochs_left_ = epochs;
    order_ = nullptr;
    if (!steps_.at(0)) epochs_left_ = 0;  // too few samples for any batch
    skip_finished_epochs();
  }
  bool done() const { return epochs_left_ == 0; }
  std::uint64_t epoch() const { return epoch_; }

  // The next step; not to be called when done.
  void take(const Sampler& sampler, Job& job, std::shared_ptr<const EpochOrder>& order) {
    if (order_ == nullptr) order_ = sampler.order(epoch_);
    job.epoch = epoch_;
    job.step = *steps_.at(cursor_);
    order = order_;
    cursor_ = job.step.next;
    job.last = !steps_.at(cursor_).has_value();
    skip_finished_epochs();
  }

 private:
  void skip_finished_epochs() {
    while (epochs_left_ > 0 && !steps_.at(cursor_)) {
      --epochs_left_;
      ++epoch_;
      cursor_ = 0;
      order_ = nullptr;
    }
  }

  Steps steps_;
  std::uint64_t epoch_ = 0;
  std::uint64_t cursor_ = 0;
  std::uint64_t epochs_left_ = 0;
  std::shared_ptr<const EpochOrder> order_;
};

}  // namespace headpond
