#pragma once

#include <cstdint>
#include <string>

#include "headpond/store.h"

namespace headpond {

// Has a request that wants an object of unknown size take memory for `size` bytes.
// Errors: resource_limit.
inline Result<void> allocate_whole(ReadRequest& request, std::uint64_t size) {
  request.out = request.allocate(size);
  if (request.out.size() == size) return {};
  request.out = {};
  return Error(ErrorCode::resource_limit,
               "no memory for the object's " + std::to_string(size) + " bytes");
}

}  // namespace headpond
