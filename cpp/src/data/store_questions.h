#pragma once

#include <string>
#include <vector>

#include "headpond/dataset.h"
#include "headpond/store.h"

namespace headpond {

// Questions to a store that the calling thread waits for, while it reports progress and may
// give up. Errors: cancelled; those of the store.

// All pages of a listing, hidden names left out.
Result<std::vector<ObjectInfo>> list_objects(Store& store, ListRequest request,
                                             OpenContext& context);

// The answers about objects that are asked for all at once; how many are in flight is bounded by
// the store.
Result<std::vector<Result<ObjectInfo>>> stat_objects(Store& store,
                                                     const std::vector<std::string>& names,
                                                     OpenContext& context);

}  // namespace headpond
