#include "headpond/prefetcher.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <utility>

#include "pipeline/finisher.h"
#include "pipeline/guard.h"
#include "pipeline/job.h"
#include "pipeline/recipe.h"
#include "pipeline/row_reader.h"
#include "pipeline/scheduler.h"
#include "pipeline/step_stream.h"

namespace headpond {
namespace {

using Time = std::chrono::steady_clock::time_point;

// Enough for a disk's latency, few enough to stay near the caches: what was made long ago
// comes from memory again. Remote stores ask for more.
constexpr std::uint64_t kPrefetchBytesMax = std::uint64_t{128} << 20;
constexpr std::size_t kJobsMin = 2;
constexpr std::size_t kJobsMax = 64;
// Of the next pass: to bridge the border between epochs, and little to throw away.
constexpr std::ptrdiff_t kJobsAhead = 2;
constexpr std::uint64_t kEpochsMax = std::uint64_t{1} << 32;
// A sleeping consumer of small batches is woken for several at once: a wake-up
// costs as much as making one.
constexpr std::uint64_t kSmallBatchBytes = std::uint64_t{1} << 20;
constexpr std::size_t kWakeBatches = 4;
constexpr auto kSmallBatchWait = std::chrono::milliseconds(1);
constexpr auto kStopLimit = std::chrono::seconds(2);

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

struct Faults {
  std::uint64_t minor = 0;
  std::uint64_t major = 0;
  static Faults now() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return {static_cast<std::uint64_t>(usage.ru_minflt),
            static_cast<std::uint64_t>(usage.ru_majflt)};
  }
};

class Core final : public Prefetcher, public WorkSource, public std::enable_shared_from_this<Core> {
 public:
  Core(std::shared_ptr<Engine> engine, std::shared_ptr<const Recipe> recipe,
       std::shared_ptr<Store> store)
      : engine_(std::move(engine)),
        recipe_(std::move(recipe)),
        store_(std::move(store)),
        slabs_(SlabPool::make()),
        buffers_(SlabPool::make()),
        prefetch_bytes_(recipe_->spec().prefetch_bytes != 0
                            ? recipe_->spec().prefetch_bytes
                            : std::min(engine_->budget().limit() / 2, kPrefetchBytesMax)),
        shards_(make_shard_stream()),
        reader_(recipe_, store_, buffers_, shards_ == nullptr ? nullptr : &shards_->held()) {}

  // --- consumer ---

  Result<void> seek(std::uint64_t epoch, std::uint64_t cursor, std::uint64_t epochs,
                    Sampler::GroupPlace group) override {
    if (!engine_->is_ours()) return forked();
    halt();
    const std::lock_guard lock(mutex_);
    if (stopped_) return Error(ErrorCode::closed, "the loader is closed");
    halting_ = false;
    ++run_;
    stop_source_ = StopSource();
    const Sampler& sampler = recipe_->spec().sampler;
    if (shards_ != nullptr) {
      if (sampler.size() != Format::kUnknownSize) group = sampler.group_at(epoch, cursor);
      const auto shards = recipe_->spec().dataset->format().shards()->shard_number();
      if (group.first_shard > shards || group.cursor > cursor) {
        return Error(ErrorCode::state_mismatch, "the state's group begins at shard " +
                                                    std::to_string(group.first_shard) + " of " +
                                                    std::to_string(shards) + " and position " +
                                                    std::to_string(group.cursor) +
                                                    ", the cursor is " + std::to_string(cursor));
      }
    }
    stream_.start(recipe_->spec(), shards_, epoch, cursor, group);
    if (epochs == 0) stream_.stop();
    pass_stop_ = epoch + std::min(epochs, kEpochsMax);
    failure_.reset();
    errors_epoch_ = epoch;
    errors_in_epoch_.clear();
    return {};
  }

  void go_on(std::uint64_t epochs) override {
    if (!engine_->is_ours()) return;
    {
      const std::lock_guard lock(mutex_);
      pass_stop_ += std::min(epochs, kEpochsMax);
    }
    engine_->scheduler().wake();
  }

  std::optional<Batch> try_next() override {
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
      if (jobs_.empty() || !jobs_.front()->finished || is_ahead(*jobs_.front()))
        return std::nullopt;
      std::shared_ptr<Job> job = std::move(jobs_.front());
      jobs_.pop_front();
      --finished_jobs_;
      jobs_bytes_ -= job->bytes;
      credit = std::move(job->credit);
      if (shards_ != nullptr) ++releasing_;
      batch = hand_out(*job);
      // Its lists serve again, its memory is the caller's alone; a read's completion
      // may have yet to let go of it.
      if (job.use_count() == 1) {
        job->reset();
        spare_.push_back(std::move(job));
      }
      // Wake workers when there is room for a good piece of work, not for each batch.
      wake = std::exchange(blocked_, blocked_ && !has_room()) && !blocked_;
    }
    credit.release();
    if (shards_ != nullptr) {
      const std::lock_guard lock(mutex_);
      wake = (--releasing_ == 0 && jobs_.empty()) || wake;  // shards may be waited for
    }
    if (wake) engine_->scheduler().wake();
    return batch;
  }

  void wait(std::uint32_t timeout_ms) override {
    if (!engine_->is_ours()) return;
    std::unique_lock lock(mutex_);
    if (!attached_) return;
    const Time start = std::chrono::steady_clock::now();
    const Time deadline = start + std::chrono::milliseconds(timeout_ms);
    const bool small = jobs_.empty() || jobs_.front()->bytes < kSmallBatchBytes;
    double WaitedFor::*const kind = waiting_for();
    ++consumers_waiting_;
    while (!something_to_take()) {
      const Time until =
          small ? std::min(deadline, std::chrono::steady_clock::now() + kSmallBatchWait) : deadline;
      consumer_.wait_until(lock, until);
      if (std::chrono::steady_clock::now() >= deadline) break;
    }
    --consumers_waiting_;
    const double spent = seconds(std::chrono::steady_clock::now() - start);
    statistics_.waited.*(statistics_.batches == 0 ? &WaitedFor::first_batch_s : kind) += spent;
  }

  bool finished() const override {
    const std::lock_guard lock(mutex_);
    return pass_is_over() && !failure_;
  }

  std::vector<Wanted> wanted() override {
    const std::lock_guard lock(mutex_);
    std::vector<Wanted> wanted;
    for (const auto& job : jobs_) {
      if (job->slab == nullptr && !job->finished) wanted.push_back({job->ticket, job->part_bytes});
    }
    return wanted;
  }

  void provide(std::uint64_t ticket, std::shared_ptr<Slab> slab) override {
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::find_if(jobs_.begin(), jobs_.end(),
                                      [&](const auto& job) { return job->ticket == ticket; });
      if (found == jobs_.end() || (*found)->slab != nullptr) return;  // halted in between
      set_slab(**found, std::move(slab));
      claimable_.push_back(*found);
      std::sort(claimable_.begin(), claimable_.end(),
                [](const auto& a, const auto& b) { return a->ticket < b->ticket; });
    }
    engine_->scheduler().wake();
  }

  std::vector<Field> output_fields() const override {
    std::vector<Field> fields;
    for (const auto& field : recipe_->fields()) fields.push_back(field.output);
    return fields;
  }

  LoaderStatistics statistics() const override {
    LoaderStatistics statistics;
    {
      const std::lock_guard lock(mutex_);
      statistics = statistics_;
      statistics.errors = errors_in_epoch_;
      if (started_) statistics.elapsed_s = seconds(last_handed_out_ - *started_);
      if (started_) {
        const Faults now = Faults::now();
        statistics.minor_faults = now.minor - faults_.minor;
        statistics.major_faults = now.major - faults_.major;
      }
    }
    if (shards_ != nullptr) {
      const auto streamed = shards_->counters();
      statistics.bytes_storage += streamed.bytes;
      statistics.bytes_dropped = streamed.dropped;
    }
    const auto slabs = slabs_->statistics();
    statistics.slabs_allocated = slabs.allocated;
    statistics.slabs_reused = slabs.reused;
    return statistics;
  }

  std::string describe_wait() const override {
    const std::lock_guard lock(mutex_);
    if (jobs_.empty())
      return unfunded_ != nullptr ? "memory: the budget is used up"
             : shards_ != nullptr ? shards_->describe()
                                  : "the plan of the next batch";
    const Job& job = *jobs_.front();
    if (job.slab == nullptr) return "memory for the batch";
    const auto left = std::to_string(job.remaining.load());
    const auto reads = job.reads_in_flight.load();
    std::string text =
        left + " of " + std::to_string(job.rows) + " samples of the batch are not done";
    if (reads > 0)
      text += "; " + std::to_string(reads) + " reads from " + store_->describe() + " are in flight";
    for (const auto row : job.reading) {
      if (job.cold[row]->pending.load() == 0) continue;
      const auto sample = job.samples[row];
      return text + ", the first for " + name_of_sample(sample);
    }
    return text;
  }

  void stop() override {
    if (!engine_->is_ours()) return;
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    halt();
    slabs_->trim();
    buffers_->trim();
  }

  // --- workers ---

  bool work(Scratch& scratch) override {
    std::unique_lock lock(mutex_);
    if (halting_) return false;
    if (!ready_.empty()) {
      Ready ready = std::move(ready_.front());
      ready_.pop_front();
      unlock_and_call_help(lock);
      if (ready.row == kOnlyFinish) {
        finish_job(std::move(ready.job));
      } else {
        reader_.fill_arrived(*ready.job, ready.row, scratch);
        complete(std::move(ready.job), 1);
      }
      return true;
    }
    if (shards_ != nullptr) {
      // Its completions only note what arrived: what is next must be found at once.
      lock.unlock();
      bool worked = false;
      const auto thrown = guarded([&] { worked = shards_->work(); });
      if (worked) return true;
      lock.lock();
      if (thrown && !failure_) failure_ = *thrown;
      if (thrown) consumer_.notify_all();
      if (halting_ || thrown) return false;
    }
    if (!claimable_.empty()) {
      std::shared_ptr<Job> job = claimable_.front();
      const std::uint32_t first = job->next_row;
      const std::uint32_t last = std::min(job->rows, first + job->chunk_rows);
      job->next_row = last;
      if (last == job->rows) claimable_.pop_front();
      unlock_and_call_help(lock);
      fill(std::move(job), first, last, scratch);
      return true;
    }
    return plan(lock);
  }

  void workers_gone() override {
    {
      const std::lock_guard lock(mutex_);
      if (!halting_ && !failure_) failure_ = Error(ErrorCode::closed, "the engine was closed");
    }
    consumer_.notify_all();
  }

 private:
  struct Ready {
    std::shared_ptr<Job> job;
    std::uint32_t row;  // to be decoded, or kOnlyFinish
  };
  static constexpr std::uint32_t kOnlyFinish = std::numeric_limits<std::uint32_t>::max();

  static Error forked() {
    return Error(ErrorCode::forked,
                 "this iterator belongs to the parent process: start a new one in the child");
  }

  std::string name_of_sample(std::uint64_t sample) const {
    const Dataset& dataset = *recipe_->spec().dataset;
    const auto number = dataset.number_of(sample);
    return "sample " + (number ? std::to_string(*number) + " " : "") + "(key \"" +
           dataset.key(sample) + "\")";
  }

  static Batch failed(Error error) {
    Batch batch;
    batch.error = std::move(error);
    return batch;
  }

  // In the place of a batch that could not be made.
  static Finished failed_job(const Job& job, Error error) {
    Finished finished;
    finished.batch = failed(std::move(error));
    finished.batch.in_order = true;
    finished.batch.epoch = job.epoch;
    finished.batch.next_cursor = job.step.next;
    finished.batch.group = job.group;
    finished.batch.last = job.last;
    return finished;
  }

  Result<void> start(std::unique_lock<std::mutex>& lock) {
    attached_ = true;
    if (!started_) {
      started_ = last_handed_out_ = std::chrono::steady_clock::now();
      faults_ = Faults::now();
    }
    lock.unlock();
    auto result = engine_->scheduler().start();
    if (result) engine_->scheduler().attach(shared_from_this());
    lock.lock();
    if (!result) attached_ = false;
    return result;
  }

  // Cancels everything and waits until nothing of it runs any more.
  void halt() {
    StopSource source;
    {
      const std::lock_guard lock(mutex_);
      halting_ = true;
      source = stop_source_;
    }
    source.request_stop();  // without the lock: a store may complete reads inside
    if (shards_ != nullptr) shards_->cancel();
    consumer_.notify_all();
    engine_->scheduler().detach(*this);
    const Time stop_by = std::chrono::steady_clock::now() + kStopLimit;
    const bool shards_drained = shards_ == nullptr || shards_->drain(kStopLimit);
    std::deque<std::shared_ptr<Job>> dropped;  // their credits come back without the lock
    std::shared_ptr<Job> unfunded;
    {
      std::unique_lock lock(mutex_);
      const bool drained =
          drained_.wait_until(lock, stop_by, [&] { return reads_in_flight_ == 0; });
      if (!drained || !shards_drained) {
        // Their completions may still come, and find this here until the last one.
        abandoned_ = shared_from_this();
        reads_stuck_ += std::exchange(reads_in_flight_, 0);
        first_run_waited_for_ = run_ + 1;
        engine_->log()->push_once(LogLevel::warning, "stuck read",
                                  "a read from " + store_->describe() +
                                      " does not return; its memory is left to the kernel");
      }
      dropped.swap(jobs_);
      unfunded.swap(unfunded_);
      claimable_.clear();
      ready_.clear();
      jobs_bytes_ = 0;
      finished_jobs_ = 0;
      attached_ = false;
      planning_ = false;
      blocked_ = false;
    }
  }

  // Of the next pass?
  bool is_ahead(const Job& job) const { return job.epoch >= pass_stop_; }

  // Has the last batch of the pass been taken?
  bool pass_is_over() const {
    if (!jobs_.empty()) return is_ahead(*jobs_.front());
    if (unfunded_ != nullptr) return is_ahead(*unfunded_);
    if (planning_) return planned_epoch_ >= pass_stop_;
    return stream_.done() || stream_.epoch() >= pass_stop_;
  }

  // Is there anything a consumer can do now?
  bool something_to_take() const {
    if (halting_ || failure_ || !attached_) return true;
    if (pass_is_over()) return true;
    if (!jobs_.empty() && jobs_.front()->finished) return true;
    if (recipe_->spec().host_memory) {
      for (const auto& job : jobs_) {
        if (job->slab == nullptr && !job->finished) return true;
      }
    }
    return false;
  }

  // Should a worker wake the consumer for what has just been finished?
  bool worth_waking() const {
    if (jobs_.empty() || !jobs_.front()->finished) return false;
    return finished_jobs_ >= std::min(kWakeBatches, jobs_.size()) ||
           jobs_.front()->bytes >= kSmallBatchBytes || blocked_ || jobs_.front()->last;
  }

  double WaitedFor::*waiting_for() const {
    if (jobs_.empty()) return unfunded_ != nullptr ? &WaitedFor::memory_s : &WaitedFor::cpu_s;
    const Job& job = *jobs_.front();
    if (job.slab == nullptr) return &WaitedFor::memory_s;
    return job.reads_in_flight.load(std::memory_order_relaxed) > 0 ? &WaitedFor::reading_s
                                                                   : &WaitedFor::cpu_s;
  }

  // Two batches of the next pass are made, and no more before it begins.
  bool is_ahead_enough() const {
    return unfunded_ == nullptr && stream_.epoch() >= pass_stop_ &&
           std::count_if(jobs_.begin(), jobs_.end(),
                         [this](const auto& job) { return is_ahead(*job); }) >= kJobsAhead;
  }
  bool may_plan() const {
    return (jobs_bytes_ < prefetch_bytes_ && jobs_.size() < kJobsMax) || jobs_.size() < kJobsMin;
  }
  bool has_room() const {
    return (jobs_bytes_ <= prefetch_bytes_ / 4 * 3 && jobs_.size() <= kJobsMax / 4 * 3) ||
           jobs_.size() < kJobsMin;
  }

  // Wakes a worker if there is work for it; that one does the same.
  void unlock_and_call_help(std::unique_lock<std::mutex>& lock) {
    const bool more = !claimable_.empty() || !ready_.empty();
    lock.unlock();
    if (more) engine_->scheduler().wake();
  }

  std::shared_ptr<Job> new_job() {
    if (spare_.empty()) return std::make_shared<Job>();
    std::shared_ptr<Job> job = std::move(spare_.back());
    spare_.pop_back();
    return job;
  }

  // The bytes of whole shards come first where their samples are mixed.
  std::shared_ptr<ShardStream> make_shard_stream() {
    const LoaderSpec& spec = recipe_->spec();
    const bool mixed = spec.sampler.mode() == ShuffleMode::window;
    const bool unknown = spec.sampler.size() == Format::kUnknownSize;
    if (spec.dataset->format().shards() == nullptr || (!mixed && !unknown)) return nullptr;
    const std::uint64_t limit = engine_->budget().limit();
    ShardStream::Setup setup;
    setup.dataset = spec.dataset;
    setup.store = store_;
    setup.budget = &engine_->budget();
    setup.held_bytes_max = limit - std::min(prefetch_bytes_, limit / 8);
    setup.buffers = buffers_;
    setup.log = engine_->log();
    setup.wake = [engine = engine_.get()] { engine->scheduler().wake(); };
    return std::make_shared<ShardStream>(std::move(setup));
  }

  // Of the next step; the stream wakes a worker when that may have changed.
  bool shards_are_ready() {
    if (shards_ == nullptr) return true;
    if (stream_.epoch() >= pass_stop_) return false;  // the next pass may never come
    const bool starving = jobs_.empty() && releasing_ == 0;
    const bool ready = stream_.ready(recipe_->spec().sampler, starving);
    // In its place: behind the batches that are still to be handed out.
    if (!ready && starving && !failure_) failure_ = shards_->error();
    if (failure_ || stream_.done() || stream_.epoch() >= pass_stop_) consumer_.notify_all();
    return ready && !failure_;
  }

  // Plans the next batch; one worker at a time, so that credits are taken in order.
  bool plan(std::unique_lock<std::mutex>& lock) {
    if (unfunded_ == nullptr && stream_.done()) return false;
    if (planning_) {
      worker_wants_wake_ = true;
      return false;
    }
    if (is_ahead_enough()) return false;
    if (!may_plan()) {
      blocked_ = true;
      return false;
    }
    if (unfunded_ == nullptr && !shards_are_ready()) return false;
    planning_ = true;
    const auto rank = jobs_.empty() ? ByteBudget::Rank::oldest : ByteBudget::Rank::later;
    std::shared_ptr<Job> job = std::move(unfunded_);
    unfunded_ = nullptr;
    std::shared_ptr<const EpochOrder> order;
    if (job == nullptr) {
      job = new_job();
      job->ticket = next_ticket_++;
      job->run = run_;
      stream_.take(recipe_->spec().sampler, *job, order);
    }
    planned_epoch_ = job->epoch;
    lock.unlock();
    bool funded = true;
    auto thrown = guarded([&] {
      if (order != nullptr) recipe_->plan(*job, *order);
      funded = fund(*job, rank);
    });
    if (thrown) {
      job->part_bytes.clear();
      job->finished = failed_job(*job, *std::move(thrown));
    }
    lock.lock();
    if (!funded && jobs_.empty()) {
      // The consumer has taken the last batch meanwhile: this one is the oldest now,
      // and no release may be left to wait for.
      lock.unlock();
      funded = fund(*job, ByteBudget::Rank::oldest);
      lock.lock();
    }
    planning_ = false;
    if (halting_ || job->run != run_) {
      lock.unlock();  // the job's credit comes back without the lock
      return false;
    }
    if (!funded) {
      unfunded_ = std::move(job);
      return false;
    }
    enqueue(job);
    const bool wake = std::exchange(worker_wants_wake_, false) || !claimable_.empty();
    lock.unlock();
    if (recipe_->spec().host_memory) consumer_.notify_all();  // it has memory to provide
    if (wake) engine_->scheduler().wake();
    return true;
  }

  // Credit and memory; false when the budget has none now.
  bool fund(Job& job, ByteBudget::Rank rank) {
    auto credit = engine_->budget().take(job.bytes, rank);
    if (!credit) return false;
    job.credit = *std::move(credit);
    if (recipe_->spec().host_memory) return true;
    auto slab = slabs_->allocate(job.part_bytes);
    if (slab) {
      set_slab(job, *std::move(slab));
    } else {
      job.finished = failed_job(
          job, std::move(slab).error().in("a batch of " + std::to_string(job.rows) + " samples"));
    }
    return true;
  }

  void set_slab(Job& job, std::shared_ptr<Slab> slab) const {
    job.slab = std::move(slab);
    job.parts.resize(job.part_bytes.size());
    for (std::size_t part = 0; part < job.parts.size(); ++part)
      job.parts[part] = job.slab->part(part).data();
    job.cold.resize(job.rows);
  }

  void enqueue(const std::shared_ptr<Job>& job) {
    jobs_.push_back(job);
    jobs_bytes_ += job->bytes;
    if (job->finished) {
      ++finished_jobs_;
      if (consumers_waiting_ > 0) consumer_.notify_all();
    } else if (job->slab != nullptr) {
      claimable_.push_back(job);
    }
  }

  void fill(std::shared_ptr<Job> job, std::uint32_t first, std::uint32_t last, Scratch& scratch) {
    std::vector<ColdRead> reads;
    auto thrown = guarded([&] { reads = reader_.fill(*job, first, last, scratch); });
    if (thrown) give_up(*job, first, last, *thrown);
    std::uint32_t done = last - first;
    if (!reads.empty()) {
      for (std::uint32_t row = first; row < last; ++row) done -= job->cold[row] != nullptr ? 1 : 0;
      issue(job, std::move(reads));
    }
    complete(std::move(job), done);
  }

  // Rows whose reads have not begun fail.
  void give_up(Job& job, std::uint32_t first, std::uint32_t last, const Error& error) {
    const auto& fields = recipe_->fields();
    const auto stored = std::find_if(fields.begin(), fields.end(), [](const RecipeField& field) {
      return field.stored != RecipeField::kNone;
    });
    const auto field = static_cast<std::uint32_t>(stored - fields.begin());
    for (std::uint32_t row = first; row < last; ++row) {
      job.cold[row].reset();
      job.fail(row, field, error);
    }
  }

  void issue(const std::shared_ptr<Job>& job, std::vector<ColdRead> reads) {
    const Manifest& manifest = recipe_->spec().dataset->manifest();
    StopToken stop;
    {
      const std::lock_guard lock(mutex_);
      reads_of(job->run) += reads.size();
      for (const ColdRead& read : reads) job->reading.push_back(read.records.front().row);
      stop = stop_source_.get_token();
    }
    job->reads_in_flight.fetch_add(static_cast<std::uint32_t>(reads.size()),
                                   std::memory_order_relaxed);
    std::vector<ReadRequest> requests;
    requests.reserve(reads.size());
    for (ColdRead& read : reads) {
      if (read.out.size() != read.range.size()) {
        arrived(job, read, Error(ErrorCode::resource_limit, "no memory for a read buffer"));
        continue;
      }
      ReadRequest request;
      manifest.name(read.object, request.object);
      request.offset = read.range.start;
      request.out = read.out;
      request.expected = recipe_->spec().dataset->version(read.object);
      request.stop = stop;
      // `this` lives until no read is in flight: halt() waits for that. What the last
      // stuck read lets go of goes with the closure: inside it no store can be closed.
      request.done = [this, job = std::shared_ptr(job), read = std::move(read),
                      last = std::shared_ptr<Core>()](Result<ReadOutcome> result) mutable {
        last = read_ended(std::move(job), read, std::move(result));
      };
      requests.push_back(std::move(request));
    }
    if (!requests.empty()) store_->read(requests);
  }

  // On a thread of the store, so nothing here waits. Returns what `arrived` does.
  std::shared_ptr<Core> read_ended(std::shared_ptr<Job> job, const ColdRead& read,
                                   Result<ReadOutcome> result) {
    if (result && result->bytes != read.range.size()) {
      result = Error(ErrorCode::object_changed,
                     "the object ends after " + std::to_string(read.range.start + result->bytes) +
                         " bytes, inside the record");
    }
    if (result) {
      job->bytes_storage.fetch_add(result->bytes, std::memory_order_relaxed);
      return arrived(std::move(job), read, std::nullopt);
    }
    if (read.records.size() > 1 && is_wanted(*job)) {
      issue(job, reader_.split(*job, read));
      return arrived(std::move(job), read, std::nullopt);
    }
    return arrived(std::move(job), read, std::move(result).error());
  }

  // A read is over. Only enqueues. Everything of ours that the caller holds is gone
  // before the read counts as finished, for then the core and its engine may be
  // destroyed; the last of the stuck ones returns them to be let go of.
  std::shared_ptr<Core> arrived(std::shared_ptr<Job> job, const ColdRead& read,
                                std::optional<Error> error) {
    std::vector<std::uint32_t> rows;  // with something to decode or copy
    std::uint32_t whole = 0;          // rows that are done as they are
    std::uint32_t previous = job->rows;
    for (const ColdRecord& record : read.records) {
      ColdRow& cold = *job->cold[record.row];
      if (error) {
        job->fail(record.row, record.field, *error);
        cold.failed.store(true, std::memory_order_release);
      }
      if (record.row == previous) continue;
      previous = record.row;
      if (cold.pending.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
      if (cold.arriving.empty()) {
        ++whole;
      } else {
        rows.push_back(record.row);
      }
    }
    job->reads_in_flight.fetch_sub(1, std::memory_order_relaxed);
    const bool last =
        whole > 0 && job->remaining.fetch_sub(whole, std::memory_order_acq_rel) == whole;
    if (last || !rows.empty()) {
      {
        const std::lock_guard lock(mutex_);
        if (!halting_ && job->run == run_) {
          for (const auto row : rows) ready_.push_back({job, row});
          if (last) ready_.push_back({job, kOnlyFinish});
        }
      }
      engine_->scheduler().wake();
    }
    const std::uint64_t run = job->run;
    job.reset();
    const std::lock_guard lock(mutex_);
    if (--reads_of(run) > 0) return nullptr;
    if (run < first_run_waited_for_) return std::exchange(abandoned_, nullptr);
    drained_.notify_all();
    return nullptr;
  }

  bool is_wanted(const Job& job) const {
    const std::lock_guard lock(mutex_);
    return !halting_ && job.run == run_;
  }

  // Reads of a run that are not over. With the lock held.
  std::uint64_t& reads_of(std::uint64_t run) {
    return run < first_run_waited_for_ ? reads_stuck_ : reads_in_flight_;
  }

  void complete(std::shared_ptr<Job> job, std::uint32_t rows) {
    if (rows == 0) return;
    if (job->remaining.fetch_sub(rows, std::memory_order_acq_rel) == rows)
      finish_job(std::move(job));
  }

  void finish_job(std::shared_ptr<Job> job) {
    Finished finished;
    auto thrown = guarded([&] { finished = finish(*recipe_, *job); });
    if (thrown) finished = failed_job(*job, *std::move(thrown));
    job->held.clear();
    bool notify = false;
    {
      const std::lock_guard lock(mutex_);
      if (halting_ || job->run != run_) return;
      // jobs_ holds it; without our hold the consumer can put it to use again at once.
      Job* const held = job.get();
      job.reset();
      held->finished = std::move(finished);
      ++finished_jobs_;
      notify = consumers_waiting_ > 0 && worth_waking();
    }
    if (notify) consumer_.notify_all();
  }

  Batch hand_out(Job& job) {
    Finished& finished = *job.finished;
    Batch batch = std::move(finished.batch);
    if (errors_epoch_ != batch.epoch) {
      errors_epoch_ = batch.epoch;
      errors_in_epoch_.clear();
    }
    std::move(finished.errors.begin(), finished.errors.end(), std::back_inserter(errors_in_epoch_));
    auto& s = statistics_;
    if (finished.errors.size() > 0) {
      (recipe_->spec().on_error == OnError::skip ? s.skipped : s.replaced) +=
          finished.errors.size();
      if (errors_in_epoch_.size() > recipe_->spec().max_errors && !batch.error) {
        const SampleError& last = errors_in_epoch_.back();
        const std::string number = last.sample ? " " + std::to_string(*last.sample) : "";
        batch.error =
            Error(ErrorCode::too_many_errors,
                  std::to_string(errors_in_epoch_.size()) + " samples failed in epoch " +
                      std::to_string(batch.epoch) + ", max_errors is " +
                      std::to_string(recipe_->spec().max_errors) + "; the last was sample" +
                      number + " (key \"" + last.key + "\"): " + last.reason);
        if (last.sample) batch.error = std::move(*batch.error).at_sample(*last.sample);
        batch.fields.clear();
        batch.slab.reset();
      }
    }
    last_handed_out_ = std::chrono::steady_clock::now();
    if (!batch.error) ++s.batches;
    s.samples += finished.valid;
    s.padded += finished.padded;
    s.bytes_memory += job.bytes_memory.load(std::memory_order_relaxed);
    s.bytes_storage += job.bytes_storage.load(std::memory_order_relaxed);
    for (const auto bytes : job.part_bytes) s.bytes_batch += bytes;
    s.read_cpu_s += static_cast<double>(job.read_ns.load(std::memory_order_relaxed)) * 1e-9;
    s.decode_cpu_s += static_cast<double>(job.decode_ns.load(std::memory_order_relaxed)) * 1e-9;
    return batch;
  }

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<const Recipe> recipe_;
  const std::shared_ptr<Store> store_;
  const std::shared_ptr<SlabPool> slabs_;
  const std::shared_ptr<SlabPool> buffers_;  // of records on their way
  const std::uint64_t prefetch_bytes_;
  const std::shared_ptr<ShardStream> shards_;  // null: records are read by range
  const RowReader reader_;

  mutable std::mutex mutex_;  // everything below
  std::condition_variable consumer_;
  std::condition_variable drained_;
  StepStream stream_;
  std::deque<std::shared_ptr<Job>> jobs_;       // planned and funded, in delivery order
  std::deque<std::shared_ptr<Job>> claimable_;  // those with unclaimed rows, in that order
  std::deque<Ready> ready_;                     // rows whose records have arrived
  std::shared_ptr<Job> unfunded_;               // planned, waiting for the budget
  std::vector<std::shared_ptr<Job>> spare_;     // handed out: their memory is used again
  std::uint64_t next_ticket_ = 0;
  std::uint64_t run_ = 0;  // counts seeks: what an earlier one left behind is not for this one
  std::uint64_t pass_stop_ = 0;      // the epoch that is behind the pass
  std::uint64_t planned_epoch_ = 0;  // of the batch that is being planned
  std::uint64_t jobs_bytes_ = 0;
  std::size_t finished_jobs_ = 0;
  std::uint64_t reads_in_flight_ = 0;
  std::uint64_t reads_stuck_ = 0;           // not back when halt() gave up on them
  std::uint64_t first_run_waited_for_ = 0;  // reads of earlier runs are the stuck ones
  std::uint64_t releasing_ = 0;             // batches taken whose credit is on its way back
  bool planning_ = false;
  bool worker_wants_wake_ = false;
  bool blocked_ = false;  // planning stopped at the prefetch limit
  unsigned consumers_waiting_ = 0;
  bool attached_ = false;
  bool halting_ = false;
  bool stopped_ = false;
  StopSource stop_source_;
  std::shared_ptr<Core> abandoned_;  // itself, while reads are stuck
  std::optional<Error> failure_;
  std::optional<Time> started_;
  Time last_handed_out_{};
  Faults faults_;
  LoaderStatistics statistics_;
  std::uint64_t errors_epoch_ = 0;
  std::vector<SampleError> errors_in_epoch_;
};

}  // namespace

Result<std::shared_ptr<Prefetcher>> Prefetcher::make(std::shared_ptr<Engine> engine,
                                                     LoaderSpec spec) {
  auto recipe = Recipe::make(std::move(spec));
  if (!recipe) return std::move(recipe).error();
  auto store = (*recipe)->spec().dataset->store(engine->stores());
  if (!store) return std::move(store).error();
  auto core = std::make_shared<Core>(std::move(engine), *std::move(recipe), *std::move(store));
  // The scheduler holds the core while it is attached, so the owner's handle is
  // another count: when that is gone, work stops.
  Prefetcher* handle = core.get();
  return std::shared_ptr<Prefetcher>(handle,
                                     [core = std::move(core)](Prefetcher*) { core->stop(); });
}

}  // namespace headpond
