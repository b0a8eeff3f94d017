#include "pipeline/job_queue.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace headpond {
namespace {

constexpr std::size_t kJobsMin = 2;
constexpr std::size_t kJobsMax = 64;
// In Job::arrived: all rows are done.
constexpr std::uint32_t kDone = std::numeric_limits<std::uint32_t>::max();

}  // namespace

void JobQueue::begin() {
  jobs_.reserve(kJobsMax + 1);
  claimable_.reserve(kJobsMax + 1);
  spare_.reserve(kJobsMax + 1);
}

std::vector<std::shared_ptr<Job>> JobQueue::end() {
  claimable_.clear();
  bytes_ = finished_ = arrived_ = 0;
  return std::exchange(jobs_, {});
}

bool JobQueue::takes_another() const {
  return (bytes_ < bytes_max_ && jobs_.size() < kJobsMax) || jobs_.size() < kJobsMin;
}

bool JobQueue::has_room() const {
  return (bytes_ <= bytes_max_ / 4 * 3 && jobs_.size() <= kJobsMax / 4 * 3) ||
         jobs_.size() < kJobsMin;
}

std::shared_ptr<Job> JobQueue::fresh() {
  if (spare_.empty()) return std::make_shared<Job>();
  std::shared_ptr<Job> job = std::move(spare_.back());
  spare_.pop_back();
  return job;
}

void JobQueue::recycle(std::shared_ptr<Job> job) {
  if (spare_.size() == spare_.capacity()) return;
  job->reset();
  spare_.push_back(std::move(job));
}

void JobQueue::push(const std::shared_ptr<Job>& job) {
  jobs_.push_back(job);
  bytes_ += job->bytes;
  if (job->finished) {
    ++finished_;
  } else if (job->slab != nullptr) {
    claimable_.push_back(job);
  }
}

void JobQueue::can_be_filled(const std::shared_ptr<Job>& job) {
  const auto later = std::find_if(claimable_.begin(), claimable_.end(),
                                  [&](const auto& other) { return other->ticket > job->ticket; });
  claimable_.insert(later, job);
}

void JobQueue::finish(Job& job, Finished finished) {
  job.finished = std::move(finished);
  ++finished_;
}

std::shared_ptr<Job> JobQueue::pop() {
  std::shared_ptr<Job> job = std::move(jobs_.front());
  jobs_.erase(jobs_.begin());
  --finished_;
  bytes_ -= job->bytes;
  return job;
}

std::optional<JobQueue::Chunk> JobQueue::claim() {
  if (claimable_.empty()) return std::nullopt;
  Chunk chunk{claimable_.front(), claimable_.front()->next_row, 0};
  chunk.last = std::min(chunk.job->rows, chunk.first + chunk.job->chunk_rows);
  chunk.job->next_row = chunk.last;
  if (chunk.last == chunk.job->rows) claimable_.erase(claimable_.begin());
  return chunk;
}

void JobQueue::arrived(Job& job, std::span<const std::uint32_t> rows, bool done) {
  // Room for each row once and for one kDone was made with the job's slab.
  job.arrived.insert(job.arrived.end(), rows.begin(), rows.end());
  if (done) job.arrived.push_back(kDone);
  arrived_ += rows.size() + (done ? 1 : 0);
}

std::optional<JobQueue::Arrived> JobQueue::take_arrived() {
  if (arrived_ == 0) return std::nullopt;
  for (const auto& job : jobs_) {
    if (job->arrived.empty()) continue;
    const std::uint32_t row = job->arrived.back();
    job->arrived.pop_back();
    --arrived_;
    return Arrived{job, row == kDone ? std::nullopt : std::optional(row)};
  }
  return std::nullopt;
}

}  // namespace headpond
