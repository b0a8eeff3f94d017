#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "format/npy.h"
#include "format/store_reading.h"
#include "headpond/dataset.h"

namespace headpond {

bool has_npy_suffix(std::string_view name);

// The header of object `index`, with the object's size checked against it.
// Errors: those of parse_npy_header and the store; corrupt_data (data too short or too long);
// cancelled by `go_on`.
Result<NpyHeader> read_npy_header(Store& store, const Manifest& manifest, std::uint64_t index,
                                  const GoOn& go_on);

// "big-endian uint16"
std::string describe(const StoredType& type);

}  // namespace headpond
