#include <algorithm>
#include <utility>

#include "data/arguments.h"
#include "format/formats.h"
#include "headpond/dataset.h"

namespace headpond {
namespace {

Result<void> check_columns(const std::vector<ArrayColumn>& columns) {
  if (columns.empty()) return Error(ErrorCode::invalid_argument, "there is no array");
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto& column = columns[i];
    const std::string what = "array \"" + column.name + "\"";
    if (column.name.empty()) return Error(ErrorCode::invalid_argument, "an array has no name");
    for (std::size_t j = 0; j < i; ++j) {
      if (columns[j].name == column.name)
        return Error(ErrorCode::invalid_argument, what + " is there twice");
    }
    if (column.rows != columns[0].rows) {
      return Error(ErrorCode::invalid_argument, "arrays of unequal length: \"" + columns[0].name +
                                                    "\" has " + std::to_string(columns[0].rows) +
                                                    " rows, \"" + column.name + "\" has " +
                                                    std::to_string(column.rows));
    }
    Shape whole = column.shape;
    whole.insert(whole.begin(), column.rows);
    const auto bytes = byte_size(whole, column.dtype);
    if (!bytes || *bytes != column.bytes.size()) {
      return Error(ErrorCode::invalid_argument,
                   what + ": its memory is not as large as its shape says");
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Dataset>> open_arrays(std::vector<ArrayColumn> columns) {
  if (auto checked = check_columns(columns); !checked) return std::move(checked).error();
  const std::uint64_t rows = columns[0].rows;
  auto store = std::make_shared<MemoryStore>();
  std::vector<ObjectInfo> objects;
  std::vector<std::string> names;
  for (const auto& column : columns) {
    store->put(column.name, column.bytes, column.hold);
    auto info = stat_blocking(*store, column.name);
    if (!info) return std::move(info).error();
    objects.push_back(*std::move(info));
    names.push_back(column.name);
  }
  std::sort(names.begin(), names.end());
  const auto root = Uri::parse("memory://arrays");
  if (!root) return root.error();
  auto manifest = Manifest::build(*root, std::move(objects));
  if (!manifest) return std::move(manifest).error();

  std::vector<ArrayField> fields;
  nlohmann::json described = nlohmann::json::array();
  for (const auto& column : columns) {
    const auto at = std::lower_bound(names.begin(), names.end(), column.name) - names.begin();
    const auto row_bytes = byte_size(column.shape, column.dtype);
    if (!row_bytes) return row_bytes.error();
    fields.push_back({{column.name, column.dtype, column.shape, column.swapped},
                      static_cast<std::uint32_t>(at),
                      *row_bytes});
    described.push_back({{"name", column.name},
                         {"dtype", name_of(column.dtype)},
                         {"swapped", column.swapped},
                         {"shape", column.shape}});
  }
  Dataset::Parts parts;
  parts.manifest = *std::move(manifest);
  parts.format = make_arrays_format(std::move(fields), rows);
  parts.store = std::move(store);
  parts.arguments = arguments_text({{"format", "arrays"}, {"arrays", std::move(described)}});
  return std::make_shared<const Dataset>(std::move(parts));
}

}  // namespace headpond
