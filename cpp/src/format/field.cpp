#include "headpond/field.h"

#include "format/stored_type.h"

namespace headpond {
namespace {

struct TypeRow {
  DType dtype;
  const char* name;
  const char* code;  // NumPy's kind and item size; "" where NumPy has none
  std::size_t bytes;
};

constexpr TypeRow kTypes[] = {
    {DType::bytes, "bytes", "", 1},       {DType::boolean, "bool", "b1", 1},
    {DType::int8, "int8", "i1", 1},       {DType::uint8, "uint8", "u1", 1},
    {DType::int16, "int16", "i2", 2},     {DType::uint16, "uint16", "u2", 2},
    {DType::int32, "int32", "i4", 4},     {DType::uint32, "uint32", "u4", 4},
    {DType::int64, "int64", "i8", 8},     {DType::uint64, "uint64", "u8", 8},
    {DType::float16, "float16", "f2", 2}, {DType::bfloat16, "bfloat16", "", 2},
    {DType::float32, "float32", "f4", 4}, {DType::float64, "float64", "f8", 8},
};

const TypeRow& row_of(DType dtype) { return kTypes[static_cast<std::size_t>(dtype)]; }

std::string known_names() {
  std::string names;
  for (const auto& row : kTypes) {
    if (row.dtype == DType::bytes) continue;
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

}  // namespace

std::size_t item_size(DType dtype) { return row_of(dtype).bytes; }
std::string_view name_of(DType dtype) { return row_of(dtype).name; }

std::optional<StoredType> find_stored_type(std::string_view text) {
  for (const auto& row : kTypes) {
    if (text == row.name) return StoredType{row.dtype, false};
  }
  if (text == "?") return StoredType{DType::boolean, false};
  bool big = false;
  if (!text.empty() && std::string_view("<>=|").find(text[0]) != std::string_view::npos) {
    big = text[0] == '>';
    text.remove_prefix(1);
  }
  for (const auto& row : kTypes) {
    if (!text.empty() && text == row.code) return StoredType{row.dtype, big && row.bytes > 1};
  }
  return std::nullopt;
}

Result<DType> parse_dtype(std::string_view text) {
  const auto type = find_stored_type(text);
  if (!type) {
    return Error(ErrorCode::invalid_argument,
                 "unknown dtype \"" + std::string(text) + "\"; there are " + known_names());
  }
  if (type->swapped) {
    return Error(ErrorCode::invalid_argument,
                 "dtype \"" + std::string(text) +
                     "\" is big-endian; fields in memory are little-endian: take \"" +
                     std::string(name_of(type->dtype)) + "\"");
  }
  return type->dtype;
}

Result<std::uint64_t> byte_size(const Shape& shape, DType dtype) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0} >> 1;
  std::uint64_t bytes = item_size(dtype);
  bool empty = false;
  for (const std::uint64_t extent : shape) {
    if (extent == 0) {
      empty = true;  // but (2**62, 2**62, 0) is refused as well: its strides do not fit
    } else if (bytes > kMost / extent) {
      return Error(ErrorCode::corrupt_data, "a shape of " + std::to_string(shape.size()) +
                                                " dimensions has more than 2^63 bytes");
    } else {
      bytes *= extent;
    }
  }
  return empty ? 0 : bytes;
}

}  // namespace headpond
