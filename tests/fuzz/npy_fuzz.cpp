#include <cstdint>
#include <cstdlib>

#include "format/npy.h"

using namespace headpond;

// Any bytes are an .npy header whose sizes add up, or an error with a message.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto header = parse_npy_header({reinterpret_cast<const std::byte*>(data), size});
  if (!header) {
    if (header.error().message().empty()) std::abort();
    return 0;
  }
  const auto bytes = byte_size(header->shape, header->type.dtype);
  if (!bytes || *bytes != header->data_bytes || header->data_offset > size) std::abort();
  if (header->data_offset > kNpyHeaderMax) std::abort();
  return 0;
}
