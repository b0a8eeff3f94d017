#include "pipeline/recipe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace headpond {
namespace {

// Rows are claimed in runs that take some 100 us: decoding in ones, copying by bytes.
constexpr std::uint64_t kChunkBytes = 512 * 1024;
// Of one field of one batch; more than any machine maps, and far from overflow.
constexpr std::uint64_t kFieldBytesMax = std::uint64_t{1} << 46;

// The values a dtype holds, for pad values. 16-bit floats are padded with 0 only.
bool holds(DType dtype, double value) {
  const auto within = [&](auto limits) {
    return value >= static_cast<double>(limits.lowest()) &&
           value <= static_cast<double>(limits.max()) &&
           (!limits.is_integer || value == std::floor(value));
  };
  switch (dtype) {
    case DType::bytes:
    case DType::uint8:
      return within(std::numeric_limits<std::uint8_t>());
    case DType::boolean:
      return value == 0 || value == 1;
    case DType::int8:
      return within(std::numeric_limits<std::int8_t>());
    case DType::int16:
      return within(std::numeric_limits<std::int16_t>());
    case DType::uint16:
      return within(std::numeric_limits<std::uint16_t>());
    case DType::int32:
      return within(std::numeric_limits<std::int32_t>());
    case DType::uint32:
      return within(std::numeric_limits<std::uint32_t>());
    // 2^63 and 2^64 round up as doubles, and would not fit.
    case DType::int64:
      return value >= -0x1p63 && value < 0x1p63 && value == std::floor(value);
    case DType::uint64:
      return value >= 0 && value < 0x1p64 && value == std::floor(value);
    case DType::float16:
    case DType::bfloat16:
      return value == 0;
    case DType::float32:
    case DType::float64:
      return true;
  }
  return false;
}

}  // namespace

Result<std::shared_ptr<const Recipe>> Recipe::make(LoaderSpec spec) {
  if (spec.dataset == nullptr)
    return Error(ErrorCode::invalid_argument, "a loader needs a dataset");
  if (spec.steps.batch == 0 || spec.steps.world == 0 || spec.steps.rank >= spec.steps.world) {
    return Error(
        ErrorCode::invalid_argument,
        "batch size and world size are at least 1, and rank is below the world size; got batch " +
            std::to_string(spec.steps.batch) + ", rank " + std::to_string(spec.steps.rank) +
            ", world size " + std::to_string(spec.steps.world));
  }
  if (spec.steps.batch > std::numeric_limits<std::uint32_t>::max() / 2) {
    return Error(ErrorCode::invalid_argument,
                 "batch size " + std::to_string(spec.steps.batch) + " is too large");
  }
  const bool counts_come = !spec.sampler.size_is_known();
  if (spec.sampler.size() != spec.steps.n ||
      (!counts_come && spec.steps.n != spec.dataset->size())) {
    return Error(ErrorCode::internal,
                 "sampler, steps and dataset disagree about the number of samples");
  }
  if (spec.fields.empty()) {
    return Error(ErrorCode::invalid_argument,
                 "a batch needs at least one field: select() leaves none");
  }
  if (spec.on_error == OnError::replace) {
    for (const auto& plan : spec.fields) {
      if (plan.kind != FieldPlan::Kind::stored || plan.pad) continue;
      if (plan.source >= spec.dataset->fields().size()) continue;  // reported below
      const Field& made =
          plan.decoder ? plan.decoder->output() : spec.dataset->fields()[plan.source];
      if (!made.shape) {
        return Error(ErrorCode::invalid_argument,
                     "on_error=\"replace\" needs rows of one shape: give field \"" + plan.name +
                         "\" a pad value in batch(), or use on_error=\"skip\"");
      }
    }
  }
  auto recipe = std::shared_ptr<Recipe>(new Recipe(std::move(spec)));
  for (const auto& plan : recipe->spec_.fields) {
    auto field = recipe->make_field(plan);
    if (!field) return std::move(field).error().in("field \"" + plan.name + "\"");
    if (plan.kind == FieldPlan::Kind::stored) field->stored = recipe->stored_++;
    if (plan.kind != FieldPlan::Kind::key && !field->output.shape)
      field->varying = recipe->varying_++;
    recipe->fields_.push_back(*std::move(field));
  }
  recipe->assign_parts();
  return std::shared_ptr<const Recipe>(std::move(recipe));
}

Result<RecipeField> Recipe::make_field(const FieldPlan& plan) const {
  RecipeField field;
  field.plan = plan;
  field.output.name = plan.name;
  switch (plan.kind) {
    case FieldPlan::Kind::index:
      field.output.dtype = DType::int64;
      field.output.shape = Shape{};
      break;
    case FieldPlan::Kind::valid:
      field.output.dtype = DType::boolean;
      field.output.shape = Shape{};
      break;
    case FieldPlan::Kind::key:
      return field;
    case FieldPlan::Kind::stored: {
      if (plan.source >= spec_.dataset->fields().size()) {
        return Error(ErrorCode::invalid_argument,
                     "the dataset has no field number " + std::to_string(plan.source));
      }
      const Field& stored = spec_.dataset->fields()[plan.source];
      if (plan.decoder == nullptr && stored.swapped) {
        auto convert = make_convert_decoder(stored, stored.dtype);
        if (!convert) return std::move(convert).error();
        field.plan.decoder = *std::move(convert);
      }
      const Field& made = field.plan.decoder ? field.plan.decoder->output() : stored;
      field.output.dtype = made.dtype == DType::bytes ? DType::uint8 : made.dtype;
      field.output.shape = made.shape;
      field.in_place = field.plan.decoder == nullptr;
      break;
    }
  }
  if (plan.pad && !field.output.shape && !holds(field.output.dtype, *plan.pad)) {
    return Error(ErrorCode::invalid_argument,
                 "the pad value does not fit " + std::string(name_of(field.output.dtype)));
  }
  if (field.output.shape) {
    auto bytes = byte_size(*field.output.shape, field.output.dtype);
    if (!bytes) return std::move(bytes).error();
    if (*bytes > 0 && spec_.steps.batch > (std::uint64_t{1} << 46) / *bytes) {
      return Error(ErrorCode::invalid_argument, "a batch of " + std::to_string(spec_.steps.batch) +
                                                    " rows of " + std::to_string(*bytes) +
                                                    " bytes cannot fit in memory");
    }
    field.row_bytes = *bytes;
  }
  return field;
}

void Recipe::assign_parts() {
  for (auto& field : fields_) {
    if (field.plan.kind == FieldPlan::Kind::key) continue;
    field.part = parts_++;
    if (field.varies()) field.side_part = parts_++;
  }
}

void Recipe::plan(Job& job, const EpochOrder& order) const {
  const auto& steps = job.steps;
  const auto rows = static_cast<std::uint32_t>(job.step.rows);
  job.rows = rows;
  job.samples.resize(rows);
  const std::span<std::uint64_t> samples(job.samples);
  // Rows before the end stride through the order; padding wraps to its start.
  order.indices(steps.position(job.step, 0), steps.world, samples.first(job.step.valid));
  for (std::uint64_t row = job.step.valid; row < rows; ++row) {
    order.indices(steps.position(job.step, row), 1, samples.subspan(row, 1));
  }
  job.extents.resize(stored_ * rows);
  for (const auto& field : fields_) {
    if (field.stored == RecipeField::kNone) continue;
    spec_.dataset->format().locate(samples, field.plan.source,
                                   std::span(job.extents).subspan(field.stored * rows, rows));
  }
  refuse_oversized(job);
  plan_sizes(job);
  job.remaining.store(rows, std::memory_order_relaxed);
}

// A manifest may claim any size: rows that would take a batch beyond what can be
// mapped fail by themselves, so that no sum below overflows.
void Recipe::refuse_oversized(Job& job) const {
  const std::uint64_t rows = job.rows;
  for (std::uint32_t number = 0; number < fields_.size(); ++number) {
    const RecipeField& field = fields_[number];
    if (field.stored == RecipeField::kNone) continue;
    std::uint64_t left = field.plan.pad ? kFieldBytesMax / rows : kFieldBytesMax;
    for (std::uint32_t row = 0; row < rows; ++row) {
      Extent& extent = job.extents[field.stored * rows + row];
      if (!extent.is_stored()) continue;
      if (extent.size <= left) {
        if (!field.plan.pad) left -= extent.size;
        continue;
      }
      job.fail(row, number,
               Error(ErrorCode::resource_limit, "a record of " + std::to_string(extent.size) +
                                                    " bytes does not fit into a batch"));
      extent = {};
    }
  }
}

void Recipe::plan_sizes(Job& job) const {
  const std::uint64_t rows = job.rows;
  job.part_bytes.assign(parts_, 0);
  job.slots.assign(varying_ * (rows + 1), 0);
  job.lengths.assign(varying_ * rows, 0);
  std::uint64_t total = 0;
  bool decodes = false;
  for (const auto& field : fields_) {
    if (field.part == RecipeField::kNone) continue;
    if (field.plan.decoder) decodes = true;
    if (field.stored != RecipeField::kNone && !field.in_place) {
      for (std::uint64_t row = 0; row < rows; ++row)
        job.record_bytes += job.extents[field.stored * rows + row].size;
    }
    if (!field.varies()) {
      job.part_bytes[field.part] = field.row_bytes * rows;
    } else {
      std::uint64_t* slots = &job.slots[field.varying * (rows + 1)];
      const std::uint64_t item = item_size(field.output.dtype);
      std::uint64_t widest = 0;
      for (std::uint64_t row = 0; row < rows; ++row) {
        const Extent& extent = job.extents[field.stored * rows + row];
        const std::uint64_t record = extent.object == Extent::kMissing ? 0 : extent.size;
        const std::uint64_t bytes =
            field.plan.decoder ? field.plan.decoder->output_bytes_max(record) : record;
        const std::uint64_t slot = (bytes + item - 1) / item * item;
        slots[row + 1] = slots[row] + slot;
        widest = std::max(widest, slot);
      }
      // A padded field has equal slots, so that rows need not move.
      if (field.plan.pad) {
        for (std::uint64_t row = 0; row <= rows; ++row) slots[row] = row * widest;
      }
      job.part_bytes[field.part] = slots[rows];
      job.part_bytes[field.side_part] = (rows + 1) * sizeof(std::int64_t);
    }
  }
  for (const auto bytes : job.part_bytes) total += bytes;
  job.bytes = total + job.record_bytes;
  const std::uint64_t per_row = rows == 0 ? 1 : std::max<std::uint64_t>(1, job.bytes / rows);
  const std::uint64_t by_bytes = std::max<std::uint64_t>(1, kChunkBytes / per_row);
  // Decoding costs far more than its bytes: many workers should share one batch.
  const bool heavy = decodes && per_row > 16 * 1024;
  job.chunk_rows = static_cast<std::uint32_t>(heavy ? 1 : std::min<std::uint64_t>(by_bytes, rows));
  if (!heavy && job.bytes <= kChunkBytes) job.chunk_rows = std::max<std::uint32_t>(1, job.rows);
}

}  // namespace headpond
