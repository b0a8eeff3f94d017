#pragma once

#include <exception>
#include <new>
#include <optional>
#include <span>
#include <string>

#include "headpond/result.h"
#include "headpond/store.h"

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

// Asks the store. Where it throws, reads that it did not take up have failed; each `done` of ours
// ignores a second call, for it is not known which have run.
inline void ask(Store& store, std::span<ReadRequest> requests) {
  const auto thrown = guarded([&] { store.read(requests); });
  if (!thrown) return;
  for (ReadRequest& request : requests) {
    if (request.done) request.done(*thrown);
  }
}

}  // namespace headpond
