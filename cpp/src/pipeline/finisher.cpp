#include "pipeline/finisher.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace headpond {
namespace {

constexpr std::uint32_t kGone = std::numeric_limits<std::uint32_t>::max();

// Writes `count` elements of `value` in the field's dtype.
void fill_elements(std::byte* out, std::uint64_t count, DType dtype, double value) {
  const auto fill = [&](auto typed) {
    for (std::uint64_t i = 0; i < count; ++i)
      std::memcpy(out + i * sizeof typed, &typed, sizeof typed);
  };
  switch (dtype) {
    case DType::int8:
      return fill(static_cast<std::int8_t>(value));
    case DType::int16:
      return fill(static_cast<std::int16_t>(value));
    case DType::uint16:
      return fill(static_cast<std::uint16_t>(value));
    case DType::int32:
      return fill(static_cast<std::int32_t>(value));
    case DType::uint32:
      return fill(static_cast<std::uint32_t>(value));
    case DType::int64:
      return fill(static_cast<std::int64_t>(value));
    case DType::uint64:
      return fill(static_cast<std::uint64_t>(value));
    case DType::float32:
      return fill(static_cast<float>(value));
    case DType::float64:
      return fill(value);
    case DType::bytes:
    case DType::boolean:
    case DType::uint8:
    case DType::float16:
    case DType::bfloat16:
      break;
  }
  // One byte, or 16-bit floats: the recipe accepts only 0 for those.
  std::memset(out, static_cast<int>(value), count * item_size(dtype));
}

class Finisher {
 public:
  Finisher(const Recipe& recipe, Job& job) : recipe_(recipe), job_(job) {}

  Finished run() {
    Finished finished;
    Batch& batch = finished.batch;
    batch.in_order = true;
    batch.epoch = job_.epoch;
    batch.next_cursor = job_.step.next;
    batch.group = job_.group;
    batch.last = job_.last;
    if (auto error = settle_errors(finished)) {
      batch.error = std::move(*error);
      return finished;
    }
    batch.rows = rows_;
    if (!rows_move()) {
      batch.samples.assign(job_.samples.begin(), job_.samples.end());
      finished.padded = rows_ - job_.step.valid;
      finished.valid = job_.step.valid;
    }
    for (std::uint32_t row = 0; rows_move() && row < rows_; ++row) {
      const bool padding = is_padding(row);
      batch.samples.push_back(job_.samples[source(row)]);
      finished.padded += padding ? 1 : 0;
      finished.valid += padding || is_replaced(row) ? 0 : 1;
    }
    for (const auto& field : recipe_.fields()) batch.fields.push_back(make_field(field));
    batch.slab = job_.slab;
    return finished;
  }

 private:
  // Decides which row stands at each place of the batch (source), or returns the
  // error that takes the batch's place.
  std::optional<Error> settle_errors(Finished& finished) {
    rows_ = job_.rows;
    if (job_.errors_lost)
      return Error(ErrorCode::resource_limit, "no memory is left for the errors of a batch");
    if (!rows_move()) return std::nullopt;
    place_.resize(job_.rows);
    for (std::uint32_t row = 0; row < job_.rows; ++row) place_[row] = row;
    auto& errors = job_.errors;
    std::stable_sort(errors.begin(), errors.end(),
                     [](const RowError& a, const RowError& b) { return a.row < b.row; });
    for (auto& error : errors) {
      if (place_[error.row] == kGone) continue;  // the first failure of a row counts
      place_[error.row] = kGone;
      const RecipeField& field = recipe_.fields()[error.field];
      const auto sample = job_.samples[error.row];
      Error described =
          recipe_.spec().dataset->describe(std::move(error.error), sample, field.plan.source);
      if (recipe_.spec().on_error == OnError::raise) return described;
      if (!first_) first_ = described;
      finished.errors.push_back(note(described, sample));
    }
    if (recipe_.spec().on_error == OnError::replace) return replace_rows();
    for (std::uint32_t row = 0; row < job_.rows; ++row) {
      if (place_[row] != kGone) {
        source_.push_back(row);
        original_.push_back(row);
      }
    }
    rows_ = static_cast<std::uint32_t>(source_.size());
    if (rows_ == 0) return nothing_left();
    return std::nullopt;
  }

  // The next good row, going round, stands in for a failed one.
  std::optional<Error> replace_rows() {
    for (std::uint32_t row = 0; row < job_.rows; ++row) {
      std::uint32_t donor = row;
      while (place_[donor] == kGone) {
        donor = (donor + 1) % job_.rows;
        if (donor == row) return nothing_left();
      }
      source_.push_back(donor);
      original_.push_back(row);
    }
    return std::nullopt;
  }

  Error nothing_left() { return std::move(*first_).in("no good row is left in this batch"); }

  SampleError note(const Error& error, std::uint64_t sample) const {
    SampleError noted;
    noted.sample = recipe_.spec().dataset->number_of(sample);
    noted.key = recipe_.spec().dataset->key(sample);
    noted.uri = error.uri().value_or("");
    if (error.range()) {
      noted.start = error.range()->start;
      noted.stop = error.range()->stop;
    }
    noted.reason = error.message();
    return noted;
  }

  bool rows_move() const { return !job_.errors.empty(); }
  // The row whose bytes stand at a place of the batch, and the row whose turn it was.
  std::uint32_t source(std::uint32_t row) const { return rows_move() ? source_[row] : row; }
  std::uint32_t original(std::uint32_t row) const { return rows_move() ? original_[row] : row; }
  bool is_padding(std::uint32_t row) const { return original(row) >= job_.step.valid; }
  bool is_replaced(std::uint32_t row) const { return source(row) != original(row); }

  BatchField make_field(const RecipeField& field) {
    BatchField made;
    made.name = field.plan.name;
    made.dtype = field.output.dtype;
    if (field.plan.kind == FieldPlan::Kind::key) {
      made.kind = BatchField::Kind::key;
      return made;
    }
    made.part = field.part;
    made.data = job_.parts[field.part];
    if (field.plan.kind != FieldPlan::Kind::stored) {
      fill_reserved(field, made.data);
    } else if (field.varies()) {
      field.plan.pad ? pad(field, made) : join(field, made);
      return made;
    } else if (rows_move()) {
      for (std::uint32_t row = 0; row < rows_; ++row) {
        if (source(row) == row) continue;
        std::memmove(made.data + row * field.row_bytes, made.data + source(row) * field.row_bytes,
                     field.row_bytes);
      }
    }
    made.shape = {rows_};
    made.shape.insert(made.shape.end(), field.output.shape->begin(), field.output.shape->end());
    return made;
  }

  void fill_reserved(const RecipeField& field, std::byte* out) const {
    for (std::uint32_t row = 0; row < rows_; ++row) {
      if (field.plan.kind == FieldPlan::Kind::index) {
        const auto index = static_cast<std::int64_t>(job_.samples[source(row)]);
        std::memcpy(out + row * sizeof index, &index, sizeof index);
      } else {
        out[row] = is_padding(row) || is_replaced(row) ? std::byte{0} : std::byte{1};
      }
    }
  }

  // Ragged: rows one after another without gaps, and where each begins.
  void join(const RecipeField& field, BatchField& made) {
    const std::uint64_t* slots = &job_.slots[field.varying * (std::uint64_t{job_.rows} + 1)];
    const std::uint64_t* lengths = &job_.lengths[field.varying * job_.rows];
    const std::uint64_t item = item_size(field.output.dtype);
    made.kind = BatchField::Kind::ragged;
    made.offsets = side(field);
    std::uint64_t at = 0;
    for (std::uint32_t row = 0; row < rows_; ++row) {
      const auto from = source(row);
      if (slots[from] != at) std::memmove(made.data + at, made.data + slots[from], lengths[from]);
      made.offsets[row] = static_cast<std::int64_t>(at / item);
      at += lengths[from];
    }
    made.offsets[rows_] = static_cast<std::int64_t>(at / item);
    made.shape = {at / item};
  }

  // Padded: rows of the longest one's size. Slots are equal and at least that wide.
  void pad(const RecipeField& field, BatchField& made) {
    const std::uint64_t* slots = &job_.slots[field.varying * (std::uint64_t{job_.rows} + 1)];
    const std::uint64_t* lengths = &job_.lengths[field.varying * job_.rows];
    const std::uint64_t item = item_size(field.output.dtype);
    std::uint64_t widest = 0;
    for (std::uint32_t row = 0; row < rows_; ++row) widest = std::max(widest, lengths[source(row)]);
    made.lengths = side(field);
    // A stand-in may come from behind or before: copy it while the slots are still apart.
    for (std::uint32_t row = 0; row < rows_; ++row) {
      const auto from = source(row);
      if (from != row) std::memmove(made.data + slots[row], made.data + slots[from], lengths[from]);
    }
    for (std::uint32_t row = 0; row < rows_; ++row) {
      const auto length = lengths[source(row)];
      if (row * widest != slots[row])
        std::memmove(made.data + row * widest, made.data + slots[row], length);
      fill_elements(made.data + row * widest + length, (widest - length) / item, field.output.dtype,
                    *field.plan.pad);
      made.lengths[row] = static_cast<std::int64_t>(length / item);
    }
    made.shape = {rows_, widest / item};
  }

  std::int64_t* side(const RecipeField& field) const {
    return reinterpret_cast<std::int64_t*>(job_.parts[field.side_part]);
  }

  const Recipe& recipe_;
  Job& job_;
  std::uint32_t rows_ = 0;  // of the batch
  // Only where rows failed:
  std::vector<std::uint32_t> place_;     // per row: itself, or kGone
  std::vector<std::uint32_t> source_;    // see source()
  std::vector<std::uint32_t> original_;  // see original()
  std::optional<Error> first_;
};

}  // namespace

Finished finish(const Recipe& recipe, Job& job) { return Finisher(recipe, job).run(); }

Finished failed_batch(const Job& job, Error error) {
  Finished finished;
  Batch& batch = finished.batch;
  batch.error = std::move(error);
  batch.in_order = true;
  batch.epoch = job.epoch;
  batch.next_cursor = job.step.next;
  batch.group = job.group;
  batch.last = job.last;
  return finished;
}

}  // namespace headpond
