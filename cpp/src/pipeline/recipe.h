#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headpond/prefetcher.h"
#include "pipeline/job.h"

namespace headpond {

// How one field of a batch is made: worked out once from the FieldPlan.
struct RecipeField {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  FieldPlan plan;
  Field output;                   // dtype and shape of one row; no shape: varying
  bool in_place = false;          // the stored bytes are the value: read into the batch
  std::uint64_t row_bytes = 0;    // fixed shape
  std::size_t stored = kNone;     // position among stored fields
  std::size_t varying = kNone;    // position among varying fields
  std::size_t part = kNone;       // of the slab: values
  std::size_t side_part = kNone;  // varying: offsets (ragged) or lengths (padded)

  bool varies() const { return varying != kNone; }
};

// Where a row's value of a stored field goes.
inline std::span<std::byte> slot_of(const RecipeField& field, const Job& job, std::uint32_t row) {
  if (!field.varies()) return {job.parts[field.part] + field.row_bytes * row, field.row_bytes};
  const std::uint64_t* slots = &job.slots[field.varying * (std::uint64_t{job.rows} + 1)];
  return {job.parts[field.part] + slots[row], slots[row + 1] - slots[row]};
}

// A LoaderSpec made ready: field by field, and how a batch is laid out. Immutable.
class Recipe {
 public:
  // Errors: invalid_argument, naming the field.
  static Result<std::shared_ptr<const Recipe>> make(LoaderSpec spec);

  const LoaderSpec& spec() const { return spec_; }
  const std::vector<RecipeField>& fields() const { return fields_; }
  std::size_t stored_fields() const { return stored_; }
  std::size_t varying_fields() const { return varying_; }

  // Fills the plan part of a job whose ticket, epoch and step are set: samples,
  // extents, sizes. O(rows); no I/O.
  void plan(Job& job, const EpochOrder& order) const;

 private:
  explicit Recipe(LoaderSpec spec) : spec_(std::move(spec)) {}
  Result<RecipeField> make_field(const FieldPlan& plan) const;
  void assign_parts();
  void refuse_oversized(Job& job) const;
  void plan_sizes(Job& job) const;

  LoaderSpec spec_;
  std::vector<RecipeField> fields_;
  std::size_t stored_ = 0;
  std::size_t varying_ = 0;
  std::size_t parts_ = 0;
};

}  // namespace headpond
