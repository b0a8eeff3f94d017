#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/stored_type.h"
#include "headpond/field.h"

namespace headpond {

// What an .npy file says before its data (numpy/lib/format.py, versions 1.0 to 3.0).
struct NpyHeader {
  StoredType type;
  Shape shape;                    // C order
  std::uint64_t data_offset = 0;  // of the first element
  std::uint64_t data_bytes = 0;   // the product of shape and item size
};

// The longest header we read, with magic and length; NumPy's own limit is 10,000 too.
inline constexpr std::size_t kNpyHeaderMax = 10'000;

// Does this begin as an .npy file?
bool is_npy(std::span<const std::byte> start);

// Parses the start of a file: the whole header, or the first kNpyHeaderMax bytes.
// Errors: corrupt_data (not .npy, cut, too long, malformed, sizes that overflow);
// unsupported (object, structured and text dtypes, Fortran order), saying what to do.
Result<NpyHeader> parse_npy_header(std::span<const std::byte> start);

}  // namespace headpond
