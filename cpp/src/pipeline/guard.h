#pragma once

#include <exception>
#include <new>
#include <optional>
#include <string>

#include "headpond/result.h"

namespace headpond {

// Runs what may throw although nothing of ours does: libraries, memory that the machine does not
// give. On a worker an exception would end the process; so it becomes an error.
template <class Work>
std::optional<Error> guarded(Work work) {
  try {
    work();
    return std::nullopt;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::resource_limit, "no memory is left");
  } catch (const std::exception& error) {
    return Error(ErrorCode::internal, std::string("an exception: ") + error.what());
  }
}

}  // namespace headpond
