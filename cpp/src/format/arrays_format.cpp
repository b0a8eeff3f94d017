#include <utility>

#include "format/formats.h"

namespace headpond {
namespace {

class ArraysFormat final : public Format {
 public:
  ArraysFormat(std::vector<ArrayField> columns, std::uint64_t rows)
      : columns_(std::move(columns)), rows_(rows) {
    for (const auto& column : columns_) fields_.push_back(column.field);
  }

  std::uint64_t size() const override { return rows_; }
  std::span<const Field> fields() const override { return fields_; }

  void locate(std::span<const std::uint64_t> samples, std::size_t field,
              std::span<Extent> out) const override {
    const std::uint32_t object = columns_[field].object;
    const std::uint64_t row_bytes = columns_[field].row_bytes;
    for (std::size_t i = 0; i < samples.size(); ++i)
      out[i] = {object, samples[i] * row_bytes, row_bytes};
  }

  std::string key(std::uint64_t sample) const override { return std::to_string(sample); }
  std::vector<std::uint64_t> shard_counts() const override { return {rows_}; }

 private:
  std::vector<ArrayField> columns_;
  std::vector<Field> fields_;
  std::uint64_t rows_;
};

}  // namespace

std::unique_ptr<const Format> make_arrays_format(std::vector<ArrayField> fields,
                                                 std::uint64_t rows) {
  return std::make_unique<ArraysFormat>(std::move(fields), rows);
}

}  // namespace headpond
