#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "data/shard_lists.h"

using namespace headpond;

namespace {

template <class T>
bool failed(const Result<T>& result) {
  if (!result && result.error().message().empty()) std::abort();
  return !result;
}

void check(const std::vector<ShardCount>& list, std::size_t size) {
  if (list.size() > size) std::abort();
  for (const auto& shard : list) {
    if (shard.samples > kShardSamplesMax || shard.name.size() > size) std::abort();
  }
}

}  // namespace

// Any bytes are a list of names and sensible counts to each of the readers, or an error with a
// message.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto index = parse_wids_index(text); !failed(index)) {
    check(index->shards, size);
    if (index->shards.empty()) std::abort();
  }
  if (const auto list = parse_energon_json(text); !failed(list)) check(*list, size);
  if (const auto list = parse_energon_yaml(text); !failed(list)) check(*list, size);
  return 0;
}
