#pragma once

#include <memory>

#include "cache/cache_ops.h"
#include "headpond/block_cache.h"

namespace headpond {

// BlockCache::open with system calls of the caller's; they are those of the first who opens a
// folder.
Result<std::shared_ptr<BlockCache>> open_block_cache(const CacheOptions& options,
                                                     std::shared_ptr<CacheOps> ops,
                                                     std::shared_ptr<Clock> clock,
                                                     std::shared_ptr<LogQueue> log);

}  // namespace headpond
