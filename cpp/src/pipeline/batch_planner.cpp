#include "pipeline/batch_planner.h"

#include <string>
#include <utility>

#include "pipeline/finisher.h"
#include "pipeline/guard.h"

namespace headpond {

bool BatchPlanner::plan(Job& job, const EpochOrder* order, ByteBudget::Rank rank) const {
  bool funded = true;
  auto thrown = guarded([&] {
    if (order != nullptr) recipe_->plan(job, *order);
    funded = fund(job, rank);
  });
  if (!thrown) return funded;
  job.part_bytes.clear();
  job.finished = failed_batch(job, *std::move(thrown));
  return true;
}

bool BatchPlanner::fund(Job& job, ByteBudget::Rank rank) const {
  auto credit = engine_->budget().take(job.bytes, rank);
  if (!credit) return false;
  job.credit = *std::move(credit);
  if (recipe_->spec().host_memory) return true;
  auto slab = slabs_->allocate(job.part_bytes);
  if (slab) {
    set_slab(job, *std::move(slab));
  } else {
    job.finished = failed_batch(
        job, std::move(slab).error().in("a batch of " + std::to_string(job.rows) + " samples"));
  }
  return true;
}

void BatchPlanner::set_slab(Job& job, std::shared_ptr<Slab> slab) {
  job.parts.resize(job.part_bytes.size());
  for (std::size_t part = 0; part < job.parts.size(); ++part)
    job.parts[part] = slab->part(part).data();
  job.cold.resize(job.rows);
  job.arrived.reserve(job.rows + std::size_t{1});
  job.slab = std::move(slab);
}

}  // namespace headpond
