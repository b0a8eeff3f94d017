#include "pipeline/loader_counters.h"

#include <sys/resource.h>

#include <iterator>
#include <string>
#include <utility>

#include "headpond/dataset.h"

namespace headpond {

LoaderCounters::Faults LoaderCounters::Faults::now() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {static_cast<std::uint64_t>(usage.ru_minflt), static_cast<std::uint64_t>(usage.ru_majflt)};
}

void LoaderCounters::start() {
  if (started_) return;
  started_ = last_handed_out_ = std::chrono::steady_clock::now();
  faults_ = Faults::now();
}

void LoaderCounters::begin_epoch(std::uint64_t epoch) {
  epoch_ = epoch;
  errors_.clear();
}

void LoaderCounters::waited(double WaitedFor::*kind, double seconds) {
  counts_.waited.*(counts_.batches == 0 ? &WaitedFor::first_batch_s : kind) += seconds;
}

Batch LoaderCounters::hand_out(Job& job) {
  Finished& finished = *job.finished;
  Batch batch = std::move(finished.batch);
  if (epoch_ != batch.epoch) begin_epoch(batch.epoch);
  if (!finished.errors.empty()) {
    (on_error_ == OnError::skip ? counts_.skipped : counts_.replaced) += finished.errors.size();
    std::move(finished.errors.begin(), finished.errors.end(), std::back_inserter(errors_));
    if (errors_.size() > max_errors_ && !batch.error) refuse_further_errors(batch);
  }
  last_handed_out_ = std::chrono::steady_clock::now();
  if (!batch.error) ++counts_.batches;
  add(job);
  return batch;
}

void LoaderCounters::refuse_further_errors(Batch& batch) const {
  const SampleError& last = errors_.back();
  batch.error =
      Error(ErrorCode::too_many_errors,
            std::to_string(errors_.size()) + " samples failed in epoch " +
                std::to_string(batch.epoch) + ", max_errors is " + std::to_string(max_errors_) +
                "; the last was " + sample_name(last.sample, last.key) + ": " + last.reason);
  if (last.sample) batch.error = std::move(*batch.error).at_sample(*last.sample);
  batch.fields.clear();
  batch.slab.reset();
}

void LoaderCounters::add(const Job& job) {
  const auto seconds = [](const std::atomic<std::uint64_t>& ns) {
    return static_cast<double>(ns.load(std::memory_order_relaxed)) * 1e-9;
  };
  counts_.samples += job.finished->valid;
  counts_.padded += job.finished->padded;
  counts_.bytes_memory += job.bytes_memory.load(std::memory_order_relaxed);
  counts_.bytes_storage += job.bytes_storage.load(std::memory_order_relaxed);
  for (const auto bytes : job.part_bytes) counts_.bytes_batch += bytes;
  counts_.read_cpu_s += seconds(job.read_ns);
  counts_.decode_cpu_s += seconds(job.decode_ns);
}

LoaderStatistics LoaderCounters::read() const {
  LoaderStatistics counts = counts_;
  counts.errors = errors_;
  if (!started_) return counts;
  counts.elapsed_s = std::chrono::duration<double>(last_handed_out_ - *started_).count();
  const Faults now = Faults::now();
  counts.minor_faults = now.minor - faults_.minor;
  counts.major_faults = now.major - faults_.major;
  return counts;
}

}  // namespace headpond
