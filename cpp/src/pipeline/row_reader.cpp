#include "pipeline/row_reader.h"

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

std::span<ColdRecord> RowReader::fill(Job& job, std::uint32_t first, std::uint32_t last,
                                      Scratch& scratch) const {
  Work& work = scratch.object<Work>();
  work.cold.clear();
  work.named = Extent::kMissing;  // another dataset may have used it
  for (std::uint32_t field = 0; field < recipe_->fields().size(); ++field) {
    if (recipe_->fields()[field].stored != RecipeField::kNone)
      fill_field(job, field, first, last, scratch, work);
  }
  return work.cold;
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
        job.fail(first + static_cast<std::uint32_t>(i), field, one.error());
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
    job.fail(row, field, written.error());
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

}  // namespace headpond
