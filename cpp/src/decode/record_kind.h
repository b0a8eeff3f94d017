#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace headpond::decode {

// What a record that is not a JPEG seems to be, for people: "a PNG picture",
// "an empty record", "bytes 7B 22 61 ...".
std::string describe_record(std::span<const std::byte> record);

}  // namespace headpond::decode
