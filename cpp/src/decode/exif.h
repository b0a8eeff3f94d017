#pragma once

#include <cstddef>
#include <span>

namespace headpond::decode {

// Whether an APP1 segment's data (without marker and length) hold EXIF.
bool is_exif(std::span<const std::byte> segment);

// The orientation (tag 0x0112 of the first directory), 1 to 8; 1 where it is
// missing, damaged or out of range. Reads only inside the segment.
int exif_orientation(std::span<const std::byte> segment);

}  // namespace headpond::decode
