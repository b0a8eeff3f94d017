#pragma once

#include <memory>

#include "headpond/byte_budget.h"
#include "headpond/engine.h"
#include "headpond/sampler.h"
#include "headpond/slab.h"
#include "pipeline/job.h"
#include "pipeline/recipe.h"

namespace headpond {

// Makes a batch ready to be filled: what its rows read, its credit, its memory.
// Safe from any thread; a job is for one thread at a time.
class BatchPlanner {
 public:
  BatchPlanner(std::shared_ptr<Engine> engine, std::shared_ptr<const Recipe> recipe)
      : engine_(std::move(engine)), recipe_(std::move(recipe)), slabs_(SlabPool::make()) {}

  // Of a job that has its step: the plan (if `order` is given; else it has one), credit and slab.
  // False: the budget has none now. What fails stands in job.finished; nothing throws.
  bool plan(Job& job, const EpochOrder* order, ByteBudget::Rank rank) const;
  // Memory that the host made.
  static void set_slab(Job& job, std::shared_ptr<Slab> slab);

  SlabStatistics slabs() const { return slabs_->statistics(); }
  void trim() const { slabs_->trim(); }

 private:
  bool fund(Job& job, ByteBudget::Rank rank) const;

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<const Recipe> recipe_;
  const std::shared_ptr<SlabPool> slabs_;
};

}  // namespace headpond
