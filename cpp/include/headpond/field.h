#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headpond/result.h"

namespace headpond {

// Element types of fields, little-endian in memory. `bytes` is a field of varying
// length without elements (an encoded picture, text).
enum class DType : std::uint8_t {
  bytes,
  boolean,
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
};

std::size_t item_size(DType dtype);                // bytes; 1 for `bytes`
std::string_view name_of(DType dtype);             // NumPy's name: "int64"; "bytes"
Result<DType> parse_dtype(std::string_view text);  // "int64", "<i8", "bool"; invalid_argument

using Shape = std::vector<std::uint64_t>;

// Elements of a shape; corrupt_data when the product of elements and item size
// does not fit 63 bits.
Result<std::uint64_t> byte_size(const Shape& shape, DType dtype);

// One named column of a sample. `shape` is that of one sample, none when it
// varies from sample to sample.
struct Field {
  std::string name;
  DType dtype = DType::bytes;
  std::optional<Shape> shape;
  // Stored big-endian: swapped while it is copied.
  bool swapped = false;

  bool operator==(const Field&) const = default;
};

}  // namespace headpond
