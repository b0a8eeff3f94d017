#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headpond/result.h"

namespace headpond {

// Lists of shards with the number of their samples, as other programs write them.

struct ShardCount {
  std::string name;  // or URL, as written
  std::uint64_t samples = 0;
};

// More than any shard holds; a number beyond it is a wrong one.
inline constexpr std::uint64_t kShardSamplesMax = 0xFFFFFFF0;

struct WidsIndex {
  std::optional<std::string> base;  // what URLs are relative to, if not to the index
  std::vector<ShardCount> shards;
};
// JSON of wids: {"__kind__": "wids-shard-index-v1", "shardlist": [{"url": ..., "nsamples": ...}]}.
// What else it says is left out. Errors: corrupt_data; unsupported (another kind or version, or
// several datasets in one).
Result<WidsIndex> parse_wids_index(std::string_view json);

// Energon's .nv-meta/.info.json: {"shard_counts": {NAME: SAMPLES}}.
Result<std::vector<ShardCount>> parse_energon_json(std::string_view json);
// The same as .info.yaml: not YAML, but what Energon writes of it, a mapping "shard_counts:" with
// one indented "NAME: SAMPLES" a line. Errors: corrupt_data, also for YAML of another form.
Result<std::vector<ShardCount>> parse_energon_yaml(std::string_view yaml);

}  // namespace headpond
