#pragma once

#include <optional>
#include <string_view>

#include "headpond/field.h"

namespace headpond {

// A dtype with the byte order it is stored in.
struct StoredType {
  DType dtype = DType::bytes;
  bool swapped = false;  // big-endian
  bool operator==(const StoredType&) const = default;
};

// As parse_dtype, with big-endian codes (">i8"); nothing for what it does not know.
std::optional<StoredType> find_stored_type(std::string_view text);

}  // namespace headpond
