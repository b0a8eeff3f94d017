#include "pipeline/cold_reads.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "pipeline/guard.h"

namespace headpond {
namespace {

// Neighbouring cold records share a read when reading the gap costs less than a
// request, and copying them out costs less than a request too.
constexpr std::uint64_t kGapBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kMergeBelowBytes = std::uint64_t{128} << 10;
constexpr std::uint64_t kMergedBytesMax = std::uint64_t{4} << 20;

const Extent& extent_of(const Recipe& recipe, const Job& job, const ColdRecord& record) {
  return job.extents[recipe.fields()[record.field].stored * job.rows + record.row];
}

ColdRow& cold_row(Job& job, std::uint32_t row) {
  if (job.cold[row] == nullptr) job.cold[row] = std::make_unique<ColdRow>();
  return *job.cold[row];
}

}  // namespace

// A read from storage that serves one or several neighbouring records.
struct ColdReads::Read {
  std::uint32_t object = 0;
  ByteRange range;
  std::vector<ColdRecord> records;
  std::shared_ptr<Slab> buffer;  // none: straight into the batch (one record, read in place)
  std::span<std::byte> out;
  std::vector<std::uint32_t> rows;  // room for those that it completes: a completion needs none
};

ColdReads::ColdReads(std::shared_ptr<const Recipe> recipe, std::shared_ptr<Store> store,
                     std::shared_ptr<SlabPool> buffers, Arrived arrived)
    : recipe_(std::move(recipe)),
      store_(std::move(store)),
      buffers_(std::move(buffers)),
      arrived_(std::move(arrived)),
      run_(std::make_shared<Run>()) {}

std::shared_ptr<ColdReads::Run> ColdReads::run() const {
  const std::lock_guard lock(mutex_);
  return run_;
}

void ColdReads::begin() {
  auto fresh = std::make_shared<Run>();
  const std::lock_guard lock(mutex_);
  run_.swap(fresh);
}

void ColdReads::cancel() { run()->stop.request_stop(); }

bool ColdReads::drain(std::chrono::steady_clock::time_point deadline,
                      std::shared_ptr<const void> owner) {
  if (run()->in_flight.drain(deadline, std::move(owner))) return true;
  begin();  // nobody waits for the stuck ones again
  cancel();
  return false;
}

// --- planning ---

std::vector<ReadRequest> ColdReads::plan(const std::shared_ptr<Job>& job,
                                         std::span<ColdRecord> records) {
  std::vector<Read> reads = merge(*job, records);
  reads.erase(
      std::remove_if(reads.begin(), reads.end(), [&](Read& read) { return !place(*job, read); }),
      reads.end());
  auto requests = request(job, run(), std::move(reads));
  for (const ColdRecord& record : records) {
    auto& row = job->cold[record.row];
    if (row != nullptr && row->pending.load(std::memory_order_relaxed) == 0) row.reset();
  }
  return requests;
}

std::vector<ColdReads::Read> ColdReads::merge(Job& job, std::span<ColdRecord> records) const {
  std::sort(records.begin(), records.end(), [&](const ColdRecord& a, const ColdRecord& b) {
    const Extent& left = extent_of(*recipe_, job, a);
    const Extent& right = extent_of(*recipe_, job, b);
    return std::pair(left.object, left.offset) < std::pair(right.object, right.offset);
  });
  std::vector<Read> reads;
  for (const ColdRecord& record : records) {
    const Extent& extent = extent_of(*recipe_, job, record);
    const ByteRange range{extent.offset, extent.offset + extent.size};
    if (!reads.empty()) {
      Read& last = reads.back();
      const bool near = last.object == extent.object && range.start <= last.range.stop + kGapBytes;
      const bool small = std::min(last.range.size(), range.size()) < kMergeBelowBytes;
      const auto stop = std::max(last.range.stop, range.stop);
      if (near && small && stop - last.range.start <= kMergedBytesMax) {
        last.range.stop = stop;
        last.records.push_back(record);
        continue;
      }
    }
    reads.push_back({extent.object, range, {record}, nullptr, {}, {}});
  }
  return reads;
}

// Gives a read its memory and tells the rows what they wait for. False: there is no memory, and
// its records have failed.
bool ColdReads::place(Job& job, Read& read) const {
  const ColdRecord first = read.records.front();
  const RecipeField& f = recipe_->fields()[first.field];
  if (read.records.size() == 1 && f.in_place) {
    read.out = slot_of(f, job, first.row).first(read.range.size());
    if (f.varies()) job.lengths[f.varying * job.rows + first.row] = read.range.size();
    ++cold_row(job, first.row).pending;
    return true;
  }
  const std::array<std::uint64_t, 1> bytes{read.range.size()};
  auto buffer = buffers_->allocate(bytes);
  if (!buffer) {
    for (const ColdRecord& record : read.records) {
      job.fail(record.row, record.field, buffer.error());
      cold_row(job, record.row).failed.store(true, std::memory_order_relaxed);
    }
    return false;
  }
  std::uint32_t previous = job.rows;
  for (const ColdRecord& record : read.records) {
    ColdRow& row = cold_row(job, record.row);
    if (record.row != previous) ++row.pending;  // one read counts once per row
    previous = record.row;
    const RecipeField& field = recipe_->fields()[record.field];
    const Extent& extent = extent_of(*recipe_, job, record);
    if (field.varies() && field.in_place)
      job.lengths[field.varying * job.rows + record.row] = extent.size;
    row.arriving.push_back({record.field, *buffer, extent.offset - read.range.start, extent.size});
  }
  read.buffer = *buffer;
  read.out = (*buffer)->part(0);
  return true;
}

std::vector<ReadRequest> ColdReads::request(const std::shared_ptr<Job>& job,
                                            const std::shared_ptr<Run>& run,
                                            std::vector<Read> reads) {
  const Dataset& dataset = *recipe_->spec().dataset;
  std::vector<ReadRequest> requests;
  requests.reserve(reads.size());
  {
    const std::lock_guard lock(job->mutex);
    job->reading.reserve(job->reading.size() + reads.size());
  }
  for (Read& read : reads) {
    ReadRequest request;
    dataset.manifest().name(read.object, request.object);
    request.offset = read.range.start;
    request.out = read.out;
    request.expected = dataset.version(read.object);
    request.stop = run->stop.get_token();
    read.rows.resize(read.records.size());
    const std::uint32_t row = read.records.front().row;
    // `this` lives until no read is in flight: its owner drains. What the last stuck read lets
    // go of goes with the closure.
    request.done = [this, run, job = std::shared_ptr(job), read = std::move(read),
                    last = std::shared_ptr<const void>()](Result<ReadOutcome> result) mutable {
      if (job != nullptr) last = ended(run, std::move(job), read, result);
    };
    requests.push_back(std::move(request));
    const std::lock_guard lock(job->mutex);
    job->reading.push_back(row);
  }
  return requests;
}

// --- reading ---

void ColdReads::start(Job& job, std::vector<ReadRequest> requests) {
  if (!requests.empty()) begin_reads(*run(), job, std::move(requests));
}

void ColdReads::begin_reads(Run& run, Job& job, std::vector<ReadRequest> requests) {
  run.in_flight.add(requests.size());
  job.reads_in_flight.fetch_add(static_cast<std::uint32_t>(requests.size()),
                                std::memory_order_relaxed);
  ask(*store_, requests);
}

// On a thread of the store, so nothing here waits. Everything of ours that the caller holds is
// gone before the read counts as finished, for then the owner and its engine may be destroyed.
std::shared_ptr<const void> ColdReads::ended(const std::shared_ptr<Run>& run,
                                             std::shared_ptr<Job> job, Read& read,
                                             const Result<ReadOutcome>& result) {
  std::optional<Error> error;
  if (auto thrown = guarded([&] { error = judge(run, job, read, result); })) error = thrown;
  settle(job, read, error);
  read.buffer.reset();
  job.reset();
  return run->in_flight.remove();
}

// What is the read's error? Records that failed together are asked for again alone: each gets
// its own bytes or its own error.
std::optional<Error> ColdReads::judge(const std::shared_ptr<Run>& run,
                                      const std::shared_ptr<Job>& job, const Read& read,
                                      const Result<ReadOutcome>& result) {
  std::optional<Error> error;
  if (!result) {
    error = result.error();
  } else if (result->bytes != read.range.size()) {
    error = Error(ErrorCode::object_changed, "the object ends after " +
                                                 std::to_string(read.range.start + result->bytes) +
                                                 " bytes, inside the record");
  } else {
    job->bytes_storage.fetch_add(result->bytes, std::memory_order_relaxed);
  }
  if (!error || read.records.size() == 1 || run->stop.stop_requested()) return error;
  auto requests = request(job, run, split(*job, read));
  // Their rows wait for all of them, and for this one still.
  for (const ColdRecord& record : read.records) ++job->cold[record.row]->pending;
  begin_reads(*run, *job, std::move(requests));
  return std::nullopt;
}

std::vector<ColdReads::Read> ColdReads::split(const Job& job, const Read& together) const {
  std::vector<Read> reads;
  for (const ColdRecord& record : together.records) {
    const Extent& extent = extent_of(*recipe_, job, record);
    const std::uint64_t start = extent.offset - together.range.start;
    reads.push_back({extent.object,
                     {extent.offset, extent.offset + extent.size},
                     {record},
                     together.buffer,
                     together.out.subspan(start, extent.size),
                     {}});
  }
  return reads;
}

// Notes what came, and tells of the rows that waited for this read last.
void ColdReads::settle(const std::shared_ptr<Job>& job, Read& read,
                       const std::optional<Error>& error) const {
  std::size_t arrived = 0;
  std::uint32_t whole = 0;
  std::uint32_t previous = job->rows;
  for (const ColdRecord& record : read.records) {
    ColdRow& row = *job->cold[record.row];
    if (error) {
      job->fail(record.row, record.field, *error);
      row.failed.store(true, std::memory_order_release);
    }
    if (record.row == previous) continue;
    previous = record.row;
    if (row.pending.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    if (row.arriving.empty()) {
      ++whole;
    } else {
      read.rows[arrived++] = record.row;
    }
  }
  job->reads_in_flight.fetch_sub(1, std::memory_order_relaxed);
  arrived_(job, std::span(read.rows).first(arrived), whole);
}

}  // namespace headpond
