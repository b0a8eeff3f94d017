#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/beside.h"
#include "format/tar_index.h"
#include "headpond/dataset.h"

namespace headpond {

// The shards of a source; their versions may come later.
Result<std::shared_ptr<const Manifest>> resolve_shards(const Source& source, OpenContext& context);

// `known`, as of opening, or where that is not known the store's answer.
Result<ObjectVersion> version_of(Store& store, const std::string& name, ObjectVersion known,
                                 const GoOn& go_on);

using TarIndexes = std::vector<std::shared_ptr<const TarIndex>>;
// The index of every shard. Errors: the first shard's that failed; cancelled.
Result<TarIndexes> index_local_shards(const Manifest& manifest, Store& store, const Beside& beside,
                                      OpenContext& context);

}  // namespace headpond
