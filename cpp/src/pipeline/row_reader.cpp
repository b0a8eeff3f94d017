#include "pipeline/row_reader.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "pipeline/guard.h"

namespace headpond {
namespace {

// Records of one object that are decoded together go through a buffer of this size,
// so that they are still in the L2 cache when they are decoded.
constexpr std::uint64_t kRunBytes = std::uint64_t{256} << 10;
// Neighbouring cold records share a read when reading the gap costs less than a
// request, and copying them out costs less than a request too.
constexpr std::uint64_t kGapBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kMergeBelowBytes = std::uint64_t{128} << 10;
constexpr std::uint64_t kMergedBytesMax = std::uint64_t{4} << 20;

class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<std::uint64_t>& total)
      : total_(total), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    const auto spent = std::chrono::steady_clock::now() - start_;
    total_.fetch_add(static_cast<std::uint64_t>(std::chrono::nanoseconds(spent).count()),
                     std::memory_order_relaxed);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::atomic<std::uint64_t>& total_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

// Lists that a worker reuses from chunk to chunk.
struct RowReader::Work {
  enum class Outcome : std::uint8_t { filled, cold, failed };
  std::vector<Piece> pieces;      // of one run
  std::vector<Outcome> outcomes;  // of its pieces
  std::vector<ColdRecord> cold;
  std::string name;
  std::uint32_t named = Extent::kMissing;  // object whose name is in `name`
};

std::span<std::byte> RowReader::slot(Job& job, std::uint32_t field, std::uint32_t row) const {
  const RecipeField& f = recipe_->fields()[field];
  if (!f.varies()) return {job.parts[f.part] + f.row_bytes * row, f.row_bytes};
  const std::uint64_t* slots = &job.slots[f.varying * (std::uint64_t{job.rows} + 1)];
  return {job.parts[f.part] + slots[row], slots[row + 1] - slots[row]};
}

std::vector<ColdRead> RowReader::fill(Job& job, std::uint32_t first, std::uint32_t last,
                                      Scratch& scratch) const {
  Work& work = scratch.object<Work>();
  work.cold.clear();
  work.named = Extent::kMissing;  // another dataset may have used it
  for (std::uint32_t field = 0; field < recipe_->fields().size(); ++field) {
    if (recipe_->fields()[field].stored != RecipeField::kNone)
      fill_field(job, field, first, last, scratch, work);
  }
  if (work.cold.empty()) return {};
  return plan_cold(job, work.cold);
}

void RowReader::fill_field(Job& job, std::uint32_t field, std::uint32_t first, std::uint32_t last,
                           Scratch& scratch, Work& work) const {
  const RecipeField& f = recipe_->fields()[field];
  const Extent* extents = &job.extents[f.stored * job.rows];
  std::uint32_t row = first;
  while (row < last) {
    const Extent& extent = extents[row];
    if (extent.object == Extent::kMissing) {
      job.fail(row, field,
               Error(ErrorCode::corrupt_data,
                     "the sample has no field \"" +
                         recipe_->spec().dataset->fields()[f.plan.source].name + "\""));
      ++row;
    } else if (extent.object == Extent::kValue) {
      std::array<std::byte, sizeof extent.offset> value;
      std::memcpy(value.data(), &extent.offset, sizeof extent.offset);
      if (f.in_place) {
        std::memcpy(slot(job, field, row).data(), value.data(), value.size());
      } else {
        decode(job, field, row, value, scratch);
      }
      ++row;
    } else if (f.in_place && !f.varies() && extent.size != f.row_bytes) {
      job.fail(
          row, field,
          Error(ErrorCode::corrupt_data, "the record holds " + std::to_string(extent.size) +
                                             " bytes instead of " + std::to_string(f.row_bytes)));
      ++row;
    } else {
      row = fill_run(job, field, row, last, scratch, work);
    }
  }
}

// Reads a run of rows whose records lie in one object; returns the row behind it.
std::uint32_t RowReader::fill_run(Job& job, std::uint32_t field, std::uint32_t first,
                                  std::uint32_t last, Scratch& scratch, Work& work) const {
  const RecipeField& f = recipe_->fields()[field];
  const Extent* extents = &job.extents[f.stored * job.rows];
  const std::uint32_t object = extents[first].object;
  std::uint64_t bytes = 0;
  std::uint32_t stop = first;
  for (; stop < last && extents[stop].object == object; ++stop) {
    if (f.in_place && !f.varies() && extents[stop].size != f.row_bytes) break;
    if (!f.in_place && stop > first && bytes + extents[stop].size > kRunBytes) break;
    bytes += extents[stop].size;
  }
  work.pieces.resize(stop - first);
  // Records lie one after another, in the batch as in the buffer; padded ones in their slots.
  std::byte* out = f.in_place ? slot(job, field, first).data() : scratch.get(0, bytes).data();
  for (std::uint32_t row = first; row < stop; ++row) {
    if (f.plan.pad && f.in_place) out = slot(job, field, row).data();
    work.pieces[row - first] = {extents[row].offset, {out, extents[row].size}};
    out += extents[row].size;
  }
  bool all_filled = false;
  {
    const Stopwatch watch(job.read_ns);
    all_filled = read_run(job, field, first, object, bytes, work);
  }
  if (all_filled && f.in_place && !f.varies()) return stop;
  const Stopwatch watch(f.in_place ? job.read_ns : job.decode_ns);
  for (std::uint32_t row = first; row < stop; ++row) {
    if (!all_filled && work.outcomes[row - first] != Work::Outcome::filled) continue;
    if (!f.in_place) {
      decode(job, field, row, work.pieces[row - first].out, scratch);
    } else if (f.varies()) {
      job.lengths[f.varying * job.rows + row] = extents[row].size;
    }
  }
  return stop;
}

// Reads the pieces of a run, `total` bytes. True when all are filled; else the
// outcomes say which, and the cold ones are noted.
bool RowReader::read_run(Job& job, std::uint32_t field, std::uint32_t first, std::uint32_t object,
                         std::uint64_t total, Work& work) const {
  // The stream has counted these bytes when it read them.
  if (held_ != nullptr && held_->copy(object, work.pieces)) return true;
  const Manifest& manifest = recipe_->spec().dataset->manifest();
  if (work.named != object) {
    manifest.name(object, work.name);
    work.named = object;
  }
  const ObjectVersion version = recipe_->spec().dataset->version(object);
  const auto count = work.pieces.size();
  const auto read = [&](std::size_t from, std::size_t pieces) -> Result<std::size_t> {
    return store_->read_now(work.name, version, std::span(work.pieces).subspan(from, pieces),
                            Wait::never);
  };
  const auto together = read(0, count);
  if (together && *together == count) {
    job.bytes_memory.fetch_add(total, std::memory_order_relaxed);
    return true;
  }
  work.outcomes.assign(count, Work::Outcome::cold);
  std::uint64_t bytes = 0;
  const auto mark_filled = [&](std::size_t from, std::size_t pieces) {
    for (std::size_t i = from; i < from + pieces; ++i) {
      work.outcomes[i] = Work::Outcome::filled;
      bytes += work.pieces[i].out.size();
    }
  };
  if (together) {
    mark_filled(0, *together);
  } else {
    // One of them failed: alone, each gets its own bytes or its own error.
    for (std::size_t i = 0; i < count; ++i) {
      auto one = read(i, 1);
      if (one) {
        mark_filled(i, *one);
      } else {
        work.outcomes[i] = Work::Outcome::failed;
        job.fail(first + static_cast<std::uint32_t>(i), field, std::move(one).error());
      }
    }
  }
  job.bytes_memory.fetch_add(bytes, std::memory_order_relaxed);
  for (std::size_t i = 0; i < count; ++i) {
    if (work.outcomes[i] == Work::Outcome::cold)
      work.cold.push_back({first + static_cast<std::uint32_t>(i), field});
  }
  return false;
}

void RowReader::decode(Job& job, std::uint32_t field, std::uint32_t row,
                       std::span<const std::byte> record, Scratch& scratch) const {
  const RecipeField& f = recipe_->fields()[field];
  const SampleContext context{recipe_->spec().augmentation_seed, job.epoch,
                              recipe_->spec().dataset->format().random_key(job.samples[row])};
  Result<std::uint64_t> written = std::uint64_t{0};
  auto thrown = guarded(
      [&] { written = f.plan.decoder->decode(record, context, slot(job, field, row), scratch); });
  if (thrown) written = *std::move(thrown);
  if (!written) {
    job.fail(row, field, std::move(written).error());
  } else if (f.varies()) {
    job.lengths[f.varying * job.rows + row] = *written;
  }
}

void RowReader::fill_arrived(Job& job, std::uint32_t row, Scratch& scratch) const {
  const ColdRow& cold = *job.cold[row];
  if (cold.failed.load(std::memory_order_acquire)) return;
  for (const Arriving& arriving : cold.arriving) {
    const RecipeField& f = recipe_->fields()[arriving.field];
    const auto record = arriving.buffer->part(0).subspan(arriving.offset, arriving.size);
    if (f.in_place) {
      const Stopwatch watch(job.read_ns);
      std::memcpy(slot(job, arriving.field, row).data(), record.data(), record.size());
    } else {
      const Stopwatch watch(job.decode_ns);
      decode(job, arriving.field, row, record, scratch);
    }
  }
}

std::vector<ColdRead> RowReader::plan_cold(Job& job, std::vector<ColdRecord>& records) const {
  const auto extent_of = [&](const ColdRecord& record) -> const Extent& {
    return job.extents[recipe_->fields()[record.field].stored * job.rows + record.row];
  };
  std::sort(records.begin(), records.end(), [&](const ColdRecord& a, const ColdRecord& b) {
    const Extent& left = extent_of(a);
    const Extent& right = extent_of(b);
    return std::pair(left.object, left.offset) < std::pair(right.object, right.offset);
  });
  std::vector<ColdRead> reads;
  for (const ColdRecord& record : records) {
    const Extent& extent = extent_of(record);
    const ByteRange range{extent.offset, extent.offset + extent.size};
    if (!reads.empty()) {
      ColdRead& last = reads.back();
      const bool near = last.object == extent.object && range.start <= last.range.stop + kGapBytes;
      const bool small = std::min(last.range.size(), range.size()) < kMergeBelowBytes;
      const auto stop = std::max(last.range.stop, range.stop);
      if (near && small && stop - last.range.start <= kMergedBytesMax) {
        last.range.stop = stop;
        last.records.push_back(record);
        continue;
      }
    }
    reads.push_back({extent.object, range, {record}, nullptr, {}});
  }
  place(job, reads);
  return reads;
}

// Gives each read its memory and tells the rows what they wait for.
void RowReader::place(Job& job, std::vector<ColdRead>& reads) const {
  const auto cold_row = [&](std::uint32_t row) -> ColdRow& {
    if (job.cold[row] == nullptr) job.cold[row] = std::make_unique<ColdRow>();
    return *job.cold[row];
  };
  for (ColdRead& read : reads) {
    const ColdRecord first = read.records.front();
    const RecipeField& f = recipe_->fields()[first.field];
    if (read.records.size() == 1 && f.in_place) {
      read.out = slot(job, first.field, first.row).first(read.range.size());
      if (f.varies()) job.lengths[f.varying * job.rows + first.row] = read.range.size();
      ++cold_row(first.row).pending;
      continue;
    }
    const std::array<std::uint64_t, 1> bytes{read.range.size()};
    auto buffer = buffers_->allocate(bytes);
    std::uint32_t previous = job.rows;
    for (const ColdRecord& record : read.records) {
      ColdRow& row = cold_row(record.row);
      if (record.row != previous) ++row.pending;  // one read counts once per row
      previous = record.row;
      const RecipeField& field = recipe_->fields()[record.field];
      const Extent& extent = job.extents[field.stored * job.rows + record.row];
      if (field.varies() && field.in_place)
        job.lengths[field.varying * job.rows + record.row] = extent.size;
      if (buffer)
        row.arriving.push_back(
            {record.field, *buffer, extent.offset - read.range.start, extent.size});
    }
    if (buffer) {
      read.buffer = *buffer;
      read.out = (*buffer)->part(0);
    } else {
      for (const ColdRecord& record : read.records)
        job.fail(record.row, record.field, Error(buffer.error()));
    }
  }
}

std::vector<ColdRead> RowReader::split(Job& job, const ColdRead& together) const {
  std::vector<ColdRead> reads;
  for (const ColdRecord& record : together.records) {
    const std::size_t stored = recipe_->fields()[record.field].stored;
    const Extent& extent = job.extents[stored * job.rows + record.row];
    const std::uint64_t start = extent.offset - together.range.start;
    ++job.cold[record.row]->pending;
    reads.push_back({extent.object,
                     {extent.offset, extent.offset + extent.size},
                     {record},
                     together.buffer,
                     together.out.subspan(start, extent.size)});
  }
  return reads;
}

}  // namespace headpond
