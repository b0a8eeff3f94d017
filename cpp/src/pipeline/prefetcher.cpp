#include <algorithm>
#include <chrono>
#include <utility>

#include "pipeline/finisher.h"
#include "pipeline/guard.h"
#include "pipeline/prefetch_core.h"

namespace headpond {
namespace {

using Time = std::chrono::steady_clock::time_point;

// Enough for a disk's latency, few enough to stay near the caches: what was made long ago
// comes from memory again. Remote stores ask for more.
constexpr std::uint64_t kPrefetchBytesMax = std::uint64_t{128} << 20;
constexpr std::uint64_t kEpochsMax = std::uint64_t{1} << 32;
// Small batches are looked for now and then, and not waited for one by one.
constexpr auto kSmallBatchWait = std::chrono::milliseconds(1);
constexpr auto kStopLimit = std::chrono::seconds(2);

Error forked() {
  return Error(ErrorCode::forked,
               "this iterator belongs to the parent process: start a new one in the child");
}

Batch failed(Error error) {
  Batch batch;
  batch.error = std::move(error);
  return batch;
}

std::uint64_t prefetch_bytes(const LoaderSpec& spec, const ByteBudget& budget) {
  if (spec.prefetch_bytes != 0) return spec.prefetch_bytes;
  return std::min(budget.limit() / 2, kPrefetchBytesMax);
}

// The bytes of whole shards come first where their samples are mixed; else null.
std::shared_ptr<ShardStream> make_shard_stream(const LoaderSpec& spec, Engine& engine,
                                               std::shared_ptr<Store> store,
                                               std::shared_ptr<SlabPool> buffers) {
  const bool mixed = spec.sampler.mode() == ShuffleMode::window;
  const bool unknown = !spec.sampler.size_is_known();
  if (spec.dataset->format().shards() == nullptr || (!mixed && !unknown)) return nullptr;
  const std::uint64_t limit = engine.budget().limit();
  ShardStream::Setup setup;
  setup.dataset = spec.dataset;
  setup.store = std::move(store);
  setup.budget = &engine.budget();
  setup.held_bytes_max = limit - std::min(prefetch_bytes(spec, engine.budget()), limit / 8);
  setup.buffers = std::move(buffers);
  setup.log = engine.log();
  setup.wake = [&engine] { engine.scheduler().wake(); };
  return std::make_shared<ShardStream>(std::move(setup));
}

}  // namespace

PrefetchCore::PrefetchCore(std::shared_ptr<Engine> engine, std::shared_ptr<const Recipe> recipe,
                           std::shared_ptr<Store> store)
    : engine_(std::move(engine)),
      recipe_(std::move(recipe)),
      store_(std::move(store)),
      buffers_(SlabPool::make()),
      planner_(engine_, recipe_),
      shards_(make_shard_stream(recipe_->spec(), *engine_, store_, buffers_)),
      uses_(UsePlan::make(recipe_, *store_)),
      reader_(recipe_, store_, shards_ == nullptr ? nullptr : &shards_->held()),
      cold_(recipe_, store_, buffers_,
            [this](const std::shared_ptr<Job>& job, std::span<const std::uint32_t> rows,
                   std::uint32_t whole) { arrived(job, rows, whole); }),
      queue_(prefetch_bytes(recipe_->spec(), engine_->budget())),
      counters_(recipe_->spec().on_error, recipe_->spec().max_errors) {}

Result<void> PrefetchCore::seek(std::uint64_t epoch, std::uint64_t cursor, std::uint64_t epochs,
                                Sampler::GroupPlace group) {
  if (!engine_->is_ours()) return forked();
  halt();
  const std::lock_guard lock(mutex_);
  if (stopped_) return Error(ErrorCode::closed, "the loader is closed");
  queue_.begin();
  cold_.begin();
  halting_ = false;
  ++run_;
  const Sampler& sampler = recipe_->spec().sampler;
  if (shards_ != nullptr) {
    if (sampler.size_is_known()) group = sampler.group_at(epoch, cursor);
    const auto shards = recipe_->spec().dataset->format().shards()->shard_number();
    if (group.first_shard > shards || group.cursor > cursor) {
      return Error(ErrorCode::state_mismatch,
                   "the state's group begins at shard " + std::to_string(group.first_shard) +
                       " of " + std::to_string(shards) + " and position " +
                       std::to_string(group.cursor) + ", the cursor is " + std::to_string(cursor));
    }
  }
  stream_.start(recipe_->spec(), shards_, epoch, cursor, group);
  if (epochs == 0) stream_.stop();
  pass_stop_ = epoch + std::min(epochs, kEpochsMax);
  failure_.reset();
  counters_.begin_epoch(epoch);
  if (uses_ != nullptr) uses_->begin(epoch, cursor);
  return {};
}

void PrefetchCore::go_on(std::uint64_t epochs) {
  if (!engine_->is_ours()) return;
  {
    const std::lock_guard lock(mutex_);
    pass_stop_ += std::min(epochs, kEpochsMax);
  }
  engine_->scheduler().wake();
}

std::optional<Batch> PrefetchCore::try_next() {
  if (!engine_->is_ours()) return failed(forked());
  ByteBudget::Credit credit;  // released after the lock: that may wake workers
  std::optional<Batch> batch;
  bool wake = false;
  {
    std::unique_lock lock(mutex_);
    if (stopped_) return failed(Error(ErrorCode::closed, "the loader is closed"));
    if (!attached_) {
      if (auto started = start(lock); !started) return failed(std::move(started).error());
    }
    if (failure_) return failed(*failure_);
    if (queue_.empty() || !queue_.oldest().finished || is_ahead(queue_.oldest()))
      return std::nullopt;
    std::shared_ptr<Job> job = queue_.pop();
    credit = std::move(job->credit);
    if (shards_ != nullptr) ++releasing_;
    if (auto thrown = guarded([&] { batch = counters_.hand_out(*job); }))
      batch = failed_batch(*job, *std::move(thrown)).batch;
    if (uses_ != nullptr) uses_->handed_out(job->epoch, job->step.next);
    // Its lists serve again, its memory is the caller's alone; a read's completion
    // may have yet to let go of it.
    if (job.use_count() == 1) queue_.recycle(std::move(job));
    // Wake workers when there is room for a good piece of work, not for each batch.
    wake = std::exchange(blocked_, blocked_ && !queue_.has_room()) && !blocked_;
  }
  credit.release();
  if (shards_ != nullptr) {
    const std::lock_guard lock(mutex_);
    wake = (--releasing_ == 0 && queue_.empty()) || wake;  // shards may be waited for
  }
  if (wake) engine_->scheduler().wake();
  return batch;
}

void PrefetchCore::wait(std::uint32_t timeout_ms) {
  if (!engine_->is_ours()) return;
  std::unique_lock lock(mutex_);
  if (!attached_) return;
  const Time start = std::chrono::steady_clock::now();
  const Time deadline = start + std::chrono::milliseconds(timeout_ms);
  const bool small = queue_.empty() || queue_.oldest().bytes < kSmallBatchBytes;
  double WaitedFor::*const kind = waiting_for();
  ++consumers_waiting_;
  while (!something_to_take()) {
    const Time until =
        small ? std::min(deadline, std::chrono::steady_clock::now() + kSmallBatchWait) : deadline;
    consumer_.wait_until(lock, until);
    if (std::chrono::steady_clock::now() >= deadline) break;
  }
  --consumers_waiting_;
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  counters_.waited(kind, spent.count());
}

bool PrefetchCore::finished() const {
  const std::lock_guard lock(mutex_);
  return pass_is_over() && !failure_;
}

std::vector<Prefetcher::Wanted> PrefetchCore::wanted() {
  const std::lock_guard lock(mutex_);
  std::vector<Wanted> wanted;
  for (const auto& job : queue_.jobs()) {
    if (lacks_memory(*job)) wanted.push_back({job->ticket, job->part_bytes});
  }
  return wanted;
}

void PrefetchCore::provide(std::uint64_t ticket, std::shared_ptr<Slab> slab) {
  {
    const std::lock_guard lock(mutex_);
    const auto jobs = queue_.jobs();
    const auto found = std::find_if(jobs.begin(), jobs.end(),
                                    [&](const auto& job) { return job->ticket == ticket; });
    if (found == jobs.end() || !lacks_memory(**found)) return;  // halted in between
    BatchPlanner::set_slab(**found, std::move(slab));
    queue_.can_be_filled(*found);
  }
  engine_->scheduler().wake();
}

std::vector<Field> PrefetchCore::output_fields() const {
  std::vector<Field> fields;
  for (const auto& field : recipe_->fields()) fields.push_back(field.output);
  return fields;
}

LoaderStatistics PrefetchCore::statistics() const {
  LoaderStatistics statistics;
  {
    const std::lock_guard lock(mutex_);
    statistics = counters_.read();
  }
  if (shards_ != nullptr) {
    const auto streamed = shards_->counters();
    statistics.bytes_storage += streamed.bytes;
    statistics.bytes_dropped = streamed.dropped;
  }
  const auto slabs = planner_.slabs();
  statistics.slabs_allocated = slabs.allocated;
  statistics.slabs_reused = slabs.reused;
  return statistics;
}

std::string PrefetchCore::describe_wait() const {
  const std::lock_guard lock(mutex_);
  if (queue_.empty())
    return unfunded_ != nullptr ? "memory: the budget is used up"
           : shards_ != nullptr ? shards_->describe()
                                : "the plan of the next batch";
  const Job& job = queue_.oldest();
  if (job.slab == nullptr) return "memory for the batch";
  const auto left = std::to_string(job.remaining.load());
  const auto reads = job.reads_in_flight.load();
  std::string text =
      left + " of " + std::to_string(job.rows) + " samples of the batch are not done";
  if (reads > 0)
    text += "; " + std::to_string(reads) + " reads from " + store_->describe() + " are in flight";
  const std::lock_guard reading(job.mutex);
  for (const auto row : job.reading) {
    if (job.cold[row]->pending.load() > 0)
      return text + ", the first for " + recipe_->spec().dataset->name_of(job.samples[row]);
  }
  return text;
}

void PrefetchCore::stop() {
  if (!engine_->is_ours()) return;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  halt();
  planner_.trim();
  buffers_->trim();
}

Result<void> PrefetchCore::start(std::unique_lock<std::mutex>& lock) {
  attached_ = true;
  counters_.start();
  lock.unlock();
  auto result = engine_->scheduler().start();
  if (result) engine_->scheduler().attach(shared_from_this());
  lock.lock();
  if (!result) attached_ = false;
  return result;
}

void PrefetchCore::halt() {
  {
    const std::lock_guard lock(mutex_);
    halting_ = true;
  }
  cold_.cancel();
  if (shards_ != nullptr) shards_->cancel();
  if (uses_ != nullptr) uses_->stop();
  consumer_.notify_all();
  engine_->scheduler().detach(*this);
  const Time deadline = std::chrono::steady_clock::now() + kStopLimit;
  bool drained = cold_.drain(deadline, shared_from_this());
  if (shards_ != nullptr) drained = shards_->drain(deadline, shared_from_this()) && drained;
  if (!drained) {
    engine_->log()->push_once(
        LogLevel::warning, "stuck read",
        "a read from " + store_->describe() + " does not return; its memory is left to the kernel");
  }
  std::vector<std::shared_ptr<Job>> dropped;  // their credits come back without the lock
  std::shared_ptr<Job> unfunded;
  {
    const std::lock_guard lock(mutex_);
    dropped = queue_.end();
    unfunded.swap(unfunded_);
    attached_ = false;
    planning_ = false;
    blocked_ = false;
  }
}

bool PrefetchCore::pass_is_over() const {
  if (!queue_.empty()) return is_ahead(queue_.oldest());
  if (unfunded_ != nullptr) return is_ahead(*unfunded_);
  if (planning_) return planned_epoch_ >= pass_stop_;
  return stream_.done() || stream_.epoch() >= pass_stop_;
}

bool PrefetchCore::something_to_take() const {
  if (halting_ || failure_ || !attached_) return true;
  if (pass_is_over()) return true;
  if (!queue_.empty() && queue_.oldest().finished) return true;
  const auto jobs = queue_.jobs();
  return recipe_->spec().host_memory &&
         std::any_of(jobs.begin(), jobs.end(), [](const auto& job) { return lacks_memory(*job); });
}

double WaitedFor::*PrefetchCore::waiting_for() const {
  if (queue_.empty()) return unfunded_ != nullptr ? &WaitedFor::memory_s : &WaitedFor::cpu_s;
  const Job& job = queue_.oldest();
  if (job.slab == nullptr) return &WaitedFor::memory_s;
  return job.reads_in_flight.load(std::memory_order_relaxed) > 0 ? &WaitedFor::reading_s
                                                                 : &WaitedFor::cpu_s;
}

Result<std::shared_ptr<Prefetcher>> Prefetcher::make(std::shared_ptr<Engine> engine,
                                                     LoaderSpec spec) {
  auto recipe = Recipe::make(std::move(spec));
  if (!recipe) return std::move(recipe).error();
  auto store = (*recipe)->spec().dataset->store(engine->stores());
  if (!store) return std::move(store).error();
  auto core =
      std::make_shared<PrefetchCore>(std::move(engine), *std::move(recipe), *std::move(store));
  // The scheduler holds the core while it is attached, so the owner's handle is
  // another count: when that is gone, work stops.
  Prefetcher* handle = core.get();
  return std::shared_ptr<Prefetcher>(handle,
                                     [core = std::move(core)](Prefetcher*) { core->stop(); });
}

}  // namespace headpond
