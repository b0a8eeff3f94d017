#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "headpond/block.h"
#include "headpond/clock.h"
#include "headpond/log.h"
#include "headpond/result.h"
#include "headpond/stop_token.h"
#include "headpond/store.h"

namespace headpond {

class BlockUses;
class UseFiles;

struct CacheOptions {
  std::string folder;
  std::uint64_t size_bytes = 0;   // the hard limit over all processes that use the folder
  std::uint64_t floor_bytes = 0;  // of the disk's free space, never crossed
  // For blocks in the making; two of them always fit.
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  std::chrono::milliseconds stalled = std::chrono::seconds(5);  // a filler that writes nothing
};

// Since the folder was opened by this process, all its stores together.
struct CacheCounters {
  std::uint64_t hits = 0;  // reads served from a published block
  std::uint64_t hit_bytes = 0;
  std::uint64_t joined = 0;  // reads that waited for a fetch under way, here or in another process
  std::uint64_t joined_bytes = 0;
  std::uint64_t missed = 0;  // reads that began a fetch
  std::uint64_t missed_bytes = 0;
  std::uint64_t fetched_bytes = 0;  // of blocks, from their source
  std::uint64_t past_bytes = 0;     // read from the source without being kept
  std::uint64_t published = 0;      // blocks
  std::uint64_t evicted = 0;        // blocks
  std::uint64_t damaged = 0;        // blocks that failed their check, and were removed
  std::uint64_t stalled = 0;        // fetches of other processes that were passed by
  std::uint64_t failures = 0;       // of the disk below the cache
};

// Where the bytes of a missing block come from: the origin.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  // Fills `out` with the block's payload from `offset` on. `done` runs exactly once, on any
  // thread, maybe before this returns. `block` lives until then.
  virtual void fetch(const Block& block, std::uint64_t offset, std::span<std::byte> out,
                     const StopToken& stop, std::function<void(Result<void>)> done) = 0;
};

// A part of a block that is wanted.
struct BlockRead {
  std::shared_ptr<const Block> block;
  std::uint64_t offset = 0;  // in the payload
  std::span<std::byte> out;  // within the payload; valid until `done` has run
  std::shared_ptr<BlockSource> source;
  // What the reader knows of the block's next use, by its place there; may be null.
  std::shared_ptr<const BlockUses> uses;
  std::uint64_t place = 0;
  StopToken stop;
  std::function<void(Result<void>)> done;  // exactly once; must not block
  bool waited = false;                     // kept by the cache, for its counters
};

// Blocks of remote objects on local disk, shared by all processes of the node.
//
// The folder is the index: nothing is scanned before the first hit. A block that is not there
// is fetched once, by whoever asks first, here or in another process; the others wait for it, and
// take over when it dies. What the limit does not allow is read past the cache. Trouble with
// the disk never fails a read and never yields wrong bytes: the source answers instead.
//
// Safe to call from any thread. One object per folder and process (record locks belong to the
// process): `open` gives out the same one. A forked child opens its own.
class BlockCache {
 public:
  // Errors: access_denied, invalid_argument (a folder that is not ours to use, or not empty);
  // io_failed. `log` takes one warning a kind of trouble.
  static Result<std::shared_ptr<BlockCache>> open(const CacheOptions& options,
                                                  std::shared_ptr<Clock> clock,
                                                  std::shared_ptr<LogQueue> log);
  virtual ~BlockCache() = default;

  // Reads parts of one block on the calling thread, if it is published and (Wait::never) in the
  // page cache. False: it is not; what was written into the pieces then means nothing.
  // `describe` is asked for the whole identity only when the block's file is opened.
  virtual bool read_now(const BlockKey& key, std::span<const Piece> pieces, Wait wait,
                        const std::function<Block()>& describe) = 0;

  // Starts a read and returns at once.
  virtual void read(BlockRead read) = 0;

  // Ends with `cancelled` the reads whose stop token has been asked to stop, and wakes what
  // waits for them.
  virtual void cancel_stopped() = 0;

  // What the loaders of this node will use next.
  virtual UseFiles& uses() = 0;

  virtual CacheCounters counters() const = 0;
  virtual const CacheOptions& options() const = 0;
};

}  // namespace headpond
