#include <algorithm>
#include <utility>

#include "pipeline/finisher.h"
#include "pipeline/guard.h"
#include "pipeline/prefetch_core.h"

namespace headpond {
namespace {

// Of the next pass: to bridge the border between epochs, and little to throw away.
constexpr std::ptrdiff_t kJobsAhead = 2;
constexpr std::size_t kWakeBatches = 4;

}  // namespace

bool PrefetchCore::work(Scratch& scratch) {
  bool worked = false;
  if (auto thrown = guarded([&] { worked = work_once(scratch); })) fail(*std::move(thrown));
  return worked;
}

void PrefetchCore::fail(Error error) {
  {
    const std::lock_guard lock(mutex_);
    if (!halting_ && !failure_) failure_ = std::move(error);
  }
  consumer_.notify_all();
}

bool PrefetchCore::work_once(Scratch& scratch) {
  std::unique_lock lock(mutex_);
  if (halting_ || failure_) return false;
  if (auto arrived = queue_.take_arrived()) {
    unlock_and_call_help(lock);
    if (arrived->row) {
      reader_.fill_arrived(*arrived->job, *arrived->row, scratch);
      complete(std::move(arrived->job), 1);
    } else {
      finish_job(std::move(arrived->job));
    }
    return true;
  }
  if (shards_ != nullptr) {
    // Its completions only note what arrived: what is next must be found at once.
    lock.unlock();
    if (shards_->work()) return true;
    lock.lock();
    if (halting_ || failure_) return false;
  }
  if (auto chunk = queue_.claim()) {
    unlock_and_call_help(lock);
    fill(std::move(chunk->job), chunk->first, chunk->last, scratch);
    return true;
  }
  return plan(lock);
}

void PrefetchCore::unlock_and_call_help(std::unique_lock<std::mutex>& lock) {
  const bool more = queue_.has_work();
  lock.unlock();
  if (more) engine_->scheduler().wake();
}

bool PrefetchCore::is_ahead_enough() const {
  const auto jobs = queue_.jobs();
  return unfunded_ == nullptr && stream_.epoch() >= pass_stop_ &&
         std::count_if(jobs.begin(), jobs.end(),
                       [this](const auto& job) { return is_ahead(*job); }) >= kJobsAhead;
}

bool PrefetchCore::shards_are_ready() {
  if (shards_ == nullptr) return true;
  if (stream_.epoch() >= pass_stop_) return false;  // the next pass may never come
  const bool starving = queue_.empty() && releasing_ == 0;
  const bool ready = stream_.ready(recipe_->spec().sampler, starving);
  // In its place: behind the batches that are still to be handed out.
  if (!ready && starving && !failure_) failure_ = shards_->error();
  if (failure_ || stream_.done() || stream_.epoch() >= pass_stop_) consumer_.notify_all();
  return ready && !failure_;
}

bool PrefetchCore::plan(std::unique_lock<std::mutex>& lock) {
  if (unfunded_ == nullptr && stream_.done()) return false;
  if (planning_) {
    worker_wants_wake_ = true;
    return false;
  }
  if (is_ahead_enough()) return false;
  if (!queue_.takes_another()) {
    blocked_ = true;
    return false;
  }
  if (unfunded_ == nullptr && !shards_are_ready()) return false;
  const auto rank = queue_.empty() ? ByteBudget::Rank::oldest : ByteBudget::Rank::later;
  std::shared_ptr<const EpochOrder> order;
  std::shared_ptr<Job> job = unfunded_ != nullptr ? std::move(unfunded_) : begin_job(order);
  unfunded_ = nullptr;
  planning_ = true;
  planned_epoch_ = job->epoch;
  lock.unlock();
  bool funded = planner_.plan(*job, order.get(), rank);
  lock.lock();
  if (!funded && queue_.empty()) {
    // The consumer has taken the last batch meanwhile: this one is the oldest now,
    // and no release may be left to wait for.
    lock.unlock();
    funded = planner_.plan(*job, nullptr, ByteBudget::Rank::oldest);
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
  queue_.push(job);
  const bool finished = job->finished.has_value();
  const bool wake = std::exchange(worker_wants_wake_, false) || queue_.has_work();
  lock.unlock();
  // It may have memory to provide.
  if (finished || recipe_->spec().host_memory) consumer_.notify_all();
  if (wake) engine_->scheduler().wake();
  return true;
}

std::shared_ptr<Job> PrefetchCore::begin_job(std::shared_ptr<const EpochOrder>& order) {
  std::shared_ptr<Job> job = queue_.fresh();
  job->ticket = next_ticket_++;
  job->run = run_;
  stream_.take(recipe_->spec().sampler, *job, order);
  if (uses_ != nullptr) uses_->planned(*job);
  return job;
}

void PrefetchCore::fill(std::shared_ptr<Job> job, std::uint32_t first, std::uint32_t last,
                        Scratch& scratch) {
  std::vector<ReadRequest> requests;
  auto thrown = guarded([&] {
    const auto cold = reader_.fill(*job, first, last, scratch);
    if (!cold.empty()) requests = cold_.plan(job, cold);
  });
  if (thrown) give_up(*job, first, last, *thrown);
  std::uint32_t done = last - first;
  if (!requests.empty()) {
    for (std::uint32_t row = first; row < last; ++row) done -= job->cold[row] != nullptr ? 1 : 0;
    cold_.start(*job, std::move(requests));
  }
  complete(std::move(job), done);
}

void PrefetchCore::give_up(Job& job, std::uint32_t first, std::uint32_t last, const Error& error) {
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

void PrefetchCore::arrived(const std::shared_ptr<Job>& job, std::span<const std::uint32_t> rows,
                           std::uint32_t whole) {
  const bool done =
      whole > 0 && job->remaining.fetch_sub(whole, std::memory_order_acq_rel) == whole;
  if (!done && rows.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    if (!halting_ && job->run == run_) queue_.arrived(*job, rows, done);
  }
  engine_->scheduler().wake();
}

void PrefetchCore::complete(std::shared_ptr<Job> job, std::uint32_t rows) {
  if (rows == 0) return;
  if (job->remaining.fetch_sub(rows, std::memory_order_acq_rel) == rows) finish_job(std::move(job));
}

void PrefetchCore::finish_job(std::shared_ptr<Job> job) {
  Finished finished;
  auto thrown = guarded([&] { finished = finish(*recipe_, *job); });
  if (thrown) finished = failed_batch(*job, *std::move(thrown));
  job->held.clear();
  if (uses_ != nullptr) uses_->used(*job);
  bool notify = false;
  {
    const std::lock_guard lock(mutex_);
    if (halting_ || job->run != run_) return;
    // jobs_ holds it; without our hold the consumer can put it to use again at once.
    Job* const held = job.get();
    job.reset();
    queue_.finish(*held, std::move(finished));
    notify = consumers_waiting_ > 0 && worth_waking();
  }
  if (notify) consumer_.notify_all();
}

bool PrefetchCore::worth_waking() const {
  if (queue_.empty() || !queue_.oldest().finished) return false;
  return queue_.finished() >= std::min(kWakeBatches, queue_.size()) ||
         queue_.oldest().bytes >= kSmallBatchBytes || blocked_ || queue_.oldest().last;
}

}  // namespace headpond
