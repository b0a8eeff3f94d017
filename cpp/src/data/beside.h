#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/source.h"
#include "format/formats.h"
#include "format/shipped_index.h"
#include "headpond/dataset.h"

namespace headpond {

// What lies beside the shards of a dataset and tells of them.
struct Beside {
  std::optional<ShippedKind> kind;  // one file for each shard
  ShardPromises promises;           // one list for all
};

// Looks once for all shards, in the folder that all of them lie in (for the kinds with a file for
// each shard: beside the first one): all kinds there are are asked for at once. Lists only where
// the store is remote: local shards are indexed when they are opened. Not beside URLs with a query,
// whose signature is theirs alone. What cannot be read is left aside, with a warning if it is
// there. Errors: cancelled.
Result<Beside> look_beside(Store& store, const Manifest& manifest, OpenContext& context);

// Reads the index of one shard and makes it one of this version; none if there is none, or it is
// not one of this shard: then a warning says so, once for a dataset. `log` may be null.
std::function<std::optional<std::vector<std::byte>>()> shipped_index_reader(
    const Beside& beside, Store& store, const Manifest& manifest, std::uint64_t shard,
    const ObjectVersion& version, const std::shared_ptr<LogQueue>& log, const GoOn& go_on);

// Shards named by an index of wids: "https://host/imagenet.json".
struct WidsSource {
  Source shards;
  std::string uri;                                            // of the index, for messages
  std::vector<std::pair<std::string, std::uint64_t>> counts;  // by printed URI, sorted
};
// Does this source name such an index?
bool is_wids_source(const Source& source);
// Errors: of the store and of parse_wids_index; invalid_argument: URLs that lead where an index of
// this place must not (from the web to local files, from https to http).
Result<WidsSource> read_wids_source(const Source& source, OpenContext& context);
ShardPromises promises_of(const WidsSource& source, const Manifest& manifest);

}  // namespace headpond
