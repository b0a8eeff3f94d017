#include "pipeline/use_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace headpond {
namespace {

constexpr std::uint64_t kChunk = 4096;
constexpr std::uint32_t kNoPlace = std::numeric_limits<std::uint32_t>::max();
constexpr std::chrono::seconds kRateEvery{1};

}  // namespace

std::shared_ptr<UsePlan> UsePlan::make(std::shared_ptr<const Recipe> recipe, Store& store) {
  auto* const cached = dynamic_cast<CachedStore*>(&store);
  const Sampler& sampler = recipe->spec().sampler;
  if (cached == nullptr || !sampler.size_is_known()) return nullptr;
  if (sampler.size() >= std::numeric_limits<std::uint32_t>::max()) return nullptr;
  auto map = cached->map();
  if (map == nullptr) return nullptr;
  std::shared_ptr<UsePlan> plan(new UsePlan(std::move(recipe), cached->cache(), std::move(map)));
  cached->follow(plan);
  return plan;
}

UsePlan::UsePlan(std::shared_ptr<const Recipe> recipe, std::shared_ptr<BlockCache> cache,
                 std::shared_ptr<const BlockMap> map)
    : recipe_(std::move(recipe)), cache_(std::move(cache)), map_(std::move(map)) {}

UsePlan::~UsePlan() { ++run_; }

std::uint64_t UsePlan::line(std::uint64_t epoch, std::uint64_t position) const {
  return epoch * (recipe_->spec().sampler.size() + 1) + position;
}

void UsePlan::begin(std::uint64_t epoch, std::uint64_t cursor) {
  std::shared_ptr<UseWriter> old;  // its file is removed without the lock
  const std::lock_guard lock(mutex_);
  old = std::move(writer_);
  ++run_;
  computing_ = too_many_ = false;
  begun_ = planned_ = {epoch, cursor};
  present_.reset();
  next_.reset();
}

void UsePlan::stop() { ++run_; }

// --- in the background

void UsePlan::compute(std::uint64_t run) {
  while (const auto from = missing(run)) {
    auto uses = uses_from(*from, run);
    if (!uses) return;
    take_in(*std::move(uses), run);
  }
}

// The present epoch first, the next one after it.
std::optional<UsePlan::Place> UsePlan::missing(std::uint64_t run) const {
  const std::lock_guard lock(mutex_);
  if (run != run_ || too_many_) return std::nullopt;
  const std::uint64_t epoch = planned_.epoch;
  if (!present_) return epoch == begun_.epoch ? begun_ : Place{epoch, 0};
  if (!next_) return Place{epoch + 1, 0};
  return std::nullopt;
}

template <class Call>
void UsePlan::for_each_block(const Extent& extent, Call&& call) const {
  const std::uint64_t first = map_->place(extent.object, extent.offset).block;
  const std::uint64_t last =
      extent.offset / kBlockBytes == (extent.offset + extent.size - 1) / kBlockBytes
          ? first
          : map_->place(extent.object, extent.offset + extent.size - 1).block;
  for (std::uint64_t block = first; block <= last; ++block) call(block);
}

// Calls with (block, position) in the order of positions, until that returns false. False: it did,
// or nobody wants it any more.
template <class Call>
bool UsePlan::for_each_use(Place from, std::uint64_t run, Call&& call) const {
  const LoaderSpec& spec = recipe_->spec();
  const Format& format = spec.dataset->format();
  std::vector<std::size_t> fields;
  for (const RecipeField& field : recipe_->fields()) {
    if (field.stored != RecipeField::kNone) fields.push_back(field.plan.source);
  }
  const auto order = spec.sampler.order(from.epoch);
  const std::uint64_t world = spec.steps.world;
  std::vector<std::uint64_t> samples;
  std::vector<Extent> extents;
  for (std::uint64_t first = from.cursor + spec.steps.rank; first < spec.sampler.size();
       first += kChunk * world) {
    if (run != run_) return false;
    samples.resize(std::min(kChunk, (spec.sampler.size() - first + world - 1) / world));
    extents.resize(samples.size() * fields.size());
    order->indices(first, world, samples);
    for (std::size_t field = 0; field < fields.size(); ++field) {
      format.locate(samples, fields[field],
                    std::span(extents).subspan(field * samples.size(), samples.size()));
    }
    for (std::size_t i = 0; i < samples.size(); ++i) {
      for (std::size_t field = 0; field < fields.size(); ++field) {
        const Extent& extent = extents[field * samples.size() + i];
        if (!extent.is_stored() || extent.size == 0) continue;
        bool go_on = true;
        for_each_block(
            extent, [&](std::uint64_t block) { go_on = go_on && call(block, first + i * world); });
        if (!go_on) return false;
      }
    }
  }
  return true;
}

// Nothing: nobody wants it any more, or (too_many_) there are too many.
std::optional<EpochUses> UsePlan::uses_from(Place from, std::uint64_t run) {
  EpochUses uses;
  uses.epoch = from.epoch;
  uses.starts.assign(map_->size() + 1, 0);
  std::uint64_t count = 0;
  const bool counted = for_each_use(from, run, [&](std::uint64_t block, std::uint64_t) {
    ++uses.starts[block + 1];
    return ++count <= kUsesMax;
  });
  if (count > kUsesMax) make_opaque(run);
  if (!counted) return std::nullopt;
  for (std::size_t block = 0; block < map_->size(); ++block)
    uses.starts[block + 1] += uses.starts[block];
  uses.positions.resize(count);
  std::vector<std::uint32_t> filled(uses.starts.begin(), uses.starts.end() - 1);
  if (!for_each_use(from, run, [&](std::uint64_t block, std::uint64_t position) {
        uses.positions[filled[block]++] = static_cast<std::uint32_t>(position);
        return true;
      }))
    return std::nullopt;
  return uses;
}

// The order counts as unknown from now on.
void UsePlan::make_opaque(std::uint64_t run) {
  {
    const std::lock_guard lock(mutex_);
    if (run != run_) return;
    too_many_ = true;
  }
  UseOptions options;
  options.opaque = true;
  options.epoch_positions = recipe_->spec().sampler.size();
  make_writer(run, options);
}

void UsePlan::take_in(EpochUses uses, std::uint64_t run) {
  {
    const std::lock_guard lock(mutex_);
    if (run != run_ || uses.epoch < planned_.epoch) return;
    if (uses.epoch == planned_.epoch) {
      seen_.assign(uses.starts.begin(), uses.starts.end() - 1);
      present_ = std::move(uses);
    } else {
      next_ = std::move(uses);
    }
    if (writer_ != nullptr) return tell_all();
  }
  make_writer(run, {});
}

// Made without the lock: it sorts, and writes a file.
void UsePlan::make_writer(std::uint64_t run, const UseOptions& options) {
  std::vector<NextUse> uses;
  std::vector<std::uint32_t> places(map_->size(), kNoPlace);
  for (std::uint64_t block = 0; block < map_->size(); ++block) {
    if (run != run_) return;
    const auto key = map_->key(block);
    if (!key) continue;
    places[block] = static_cast<std::uint32_t>(uses.size());
    uses.push_back({*key, 0});
  }
  // Where the disk has no room for it, the cache goes by what others will use.
  auto made = cache_->uses().create(uses, options);
  if (!made) return;
  const std::lock_guard lock(mutex_);
  if (run != run_) return;
  places_ = std::move(places);
  writer_ = *std::move(made);
  tell_all();
}

// --- while batches are made

void UsePlan::planned(const Job& job) {
  bool compute_next = false;
  {
    const std::lock_guard lock(mutex_);
    const bool entered = job.epoch > planned_.epoch;
    planned_ = {job.epoch, job.step.next};
    if (entered) enter_epoch();
    compute_next = !std::exchange(computing_, true) || entered;
  }
  if (compute_next) pool_.post([this, run = run_.load()] { compute(run); });
}

void UsePlan::enter_epoch() {
  present_.reset();
  if (next_ && next_->epoch == planned_.epoch) {
    present_ = std::move(next_);
    seen_.assign(present_->starts.begin(), present_->starts.end() - 1);
  }
  next_.reset();
  if (present_ && writer_ != nullptr) tell_all();
}

void UsePlan::used(const Job& job) {
  const LoaderSpec& spec = recipe_->spec();
  const std::lock_guard lock(mutex_);
  if (!present_ || job.epoch != present_->epoch) return;
  const std::size_t stored = recipe_->stored_fields();
  for (std::uint32_t row = 0; row < std::min<std::uint64_t>(job.rows, job.step.valid); ++row) {
    const std::uint64_t position = spec.steps.position(job.step, row);
    for (std::size_t field = 0; field < stored; ++field) {
      const Extent& extent = job.extents[field * job.rows + row];
      if (!extent.is_stored() || extent.size == 0) continue;
      for_each_block(extent, [&](std::uint64_t block) {
        std::uint32_t& seen = seen_[block];
        while (seen < present_->starts[block + 1] && present_->positions[seen] <= position) ++seen;
        tell(block);
      });
    }
  }
}

void UsePlan::handed_out(std::uint64_t epoch, std::uint64_t cursor) {
  const std::uint64_t here = line(epoch, cursor);
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  if (writer_ == nullptr) return;
  if (rate_since_ == std::chrono::steady_clock::time_point{} || here < rate_from_) {
    rate_since_ = now;
    rate_from_ = here;
  } else if (now - rate_since_ >= kRateEvery) {
    rate_ = static_cast<double>(here - rate_from_) /
            std::chrono::duration<double>(now - rate_since_).count();
    rate_since_ = now;
    rate_from_ = here;
  }
  writer_->advance(here, rate_);
}

// The first use of a block at or behind `from` (of the present epoch) that is still to come.
std::uint64_t UsePlan::next_locked(std::uint64_t block, std::uint64_t from) const {
  if (!present_) return kNeverUsed;
  const auto begin = present_->positions.begin();
  const auto stop = begin + present_->starts[block + 1];
  const auto here = std::lower_bound(begin + seen_[block], stop, from);
  if (here != stop) return line(present_->epoch, *here);
  const std::uint64_t half = recipe_->spec().sampler.size() / 2;
  if (!next_) return line(present_->epoch + 1, half);  // some time in the next epoch
  const std::uint32_t first = next_->starts[block];
  if (first != next_->starts[block + 1]) return line(next_->epoch, next_->positions[first]);
  return line(next_->epoch + 1, half);
}

void UsePlan::tell(std::uint64_t block) {
  if (writer_ == nullptr || !present_ || places_[block] == kNoPlace) return;
  writer_->used(places_[block], next_locked(block, 0));
}

void UsePlan::tell_all() {
  for (std::uint64_t block = 0; block < map_->size(); ++block) tell(block);
}

std::uint64_t UsePlan::next_use(std::uint64_t block) const {
  const std::lock_guard lock(mutex_);
  return next_locked(block, planned_.cursor);
}

std::shared_ptr<const UseWriter> UsePlan::writer() const {
  const std::lock_guard lock(mutex_);
  return writer_;
}

}  // namespace headpond
