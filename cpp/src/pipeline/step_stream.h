#pragma once

#include <cstdint>
#include <memory>

#include "headpond/prefetcher.h"
#include "headpond/sampler.h"
#include "headpond/steps.h"
#include "pipeline/job.h"

namespace headpond {

// Where planning stands: the steps of epochs, one after another without an end. A value.
class StepStream {
 public:
  void start(const LoaderSpec& spec, std::uint64_t epoch, std::uint64_t cursor) {
    steps_ = spec.steps;
    epoch_ = epoch;
    cursor_ = cursor;
    order_ = nullptr;
    done_ = !steps_.at(0);  // too few samples for any batch
    skip_finished_epoch();
  }
  void stop() { done_ = true; }
  bool done() const { return done_; }
  // Of the next step.
  std::uint64_t epoch() const { return epoch_; }

  // The next step; not to be called when done.
  void take(const Sampler& sampler, Job& job, std::shared_ptr<const EpochOrder>& order) {
    if (order_ == nullptr) order_ = sampler.order(epoch_);
    job.epoch = epoch_;
    job.step = *steps_.at(cursor_);
    order = order_;
    cursor_ = job.step.next;
    job.last = !steps_.at(cursor_).has_value();
    skip_finished_epoch();
  }

 private:
  void skip_finished_epoch() {
    if (done_ || steps_.at(cursor_)) return;
    ++epoch_;
    cursor_ = 0;
    order_ = nullptr;
  }

  Steps steps_;
  std::uint64_t epoch_ = 0;
  std::uint64_t cursor_ = 0;
  bool done_ = true;
  std::shared_ptr<const EpochOrder> order_;
};

}  // namespace headpond
