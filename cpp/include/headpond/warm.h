#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "headpond/dataset.h"
#include "headpond/engine.h"
#include "headpond/result.h"

namespace headpond {

struct Warmed {
  std::uint64_t blocks = 0;
  std::uint64_t kept = 0;   // are in the cache now
  std::uint64_t bytes = 0;  // of them
};

// Fills the node's cache with a dataset before it is used, block by block in its order; indexes
// shards that are not yet indexed. What is there already is not fetched, so an interrupted run goes
// on where it stopped, and several processes share the work. Ends early when the cache has no room.
//
// `proceed` is called now and then from the calling thread with blocks done and in all; returning
// false stops with `cancelled`. Errors: invalid_argument (the engine has no cache, or the dataset's
// reads do not go through it); of the stores and of indexing.
Result<Warmed> warm(const std::shared_ptr<const Dataset>& dataset, Engine& engine,
                    OpenContext& context,
                    const std::function<bool(std::uint64_t done, std::uint64_t total)>& proceed);

}  // namespace headpond
