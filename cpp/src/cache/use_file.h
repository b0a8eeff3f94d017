#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "cache/cache_folder.h"
#include "headpond/block.h"
#include "headpond/result.h"

namespace headpond {

class UseMap;
struct UseRegistry;

// A position that never comes.
inline constexpr std::uint64_t kNeverUsed = std::numeric_limits<std::uint64_t>::max();
// The distance of a block that nobody will use.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

struct NextUse {
  BlockKey key;
  std::uint64_t position = kNeverUsed;
};

struct UseOptions {
  // The order is not known: a block's distance is drawn from its key, evenly over one epoch.
  bool opaque = false;
  std::uint64_t epoch_positions = 0;  // for opaque orders
};

// What one loader will use next, for every process of the node: one position per block. Positions
// only grow, over epochs too. Removed when destroyed; a dead process's is ignored and removed by
// others.
//
// Updates are single relaxed stores to shared memory, no system call. advance() is a release: who
// sees a cursor sees every used() before it, so a block is never taken for one that is needed now
// when it has just been used. Calls from one thread at a time.
class UseWriter {
 public:
  ~UseWriter();
  UseWriter(const UseWriter&) = delete;
  UseWriter& operator=(const UseWriter&) = delete;

  // `block`: its place in the list given to create(). `next`: its next use after this one. Told
  // once the block is open for the use at hand (or known to be missing), because from here on it
  // counts as free until `next`: telling a batch of 64 before opening its blocks costs 14 points of
  // the hit rate in a cache of a quarter of the data.
  void used(std::size_t block, std::uint64_t next);
  // What has been used, and how fast: positions per second; 0: not known yet.
  void advance(std::uint64_t cursor, double rate);

 private:
  friend class UseFiles;
  UseWriter(std::shared_ptr<UseMap> map, std::vector<std::uint32_t> places,
            std::shared_ptr<UseRegistry> registry);
  std::shared_ptr<UseMap> map_;
  std::vector<std::uint32_t> places_;  // of each block in the file, which is sorted by key
  std::shared_ptr<UseRegistry> registry_;
};

// All use files of a cache directory, this process's and the others'.
//
// One object per process and directory, as with Space. Costs for a million blocks: 24 MB of disk
// and of page cache per loader, 4 MB in its process; create() takes 0.4 s; the distances of all
// take one pass over each file (13 ms), that of one 0.2 us a file, an update 60 ns. Safe to call
// from any thread. Files that are damaged are ignored, and removed once their process is dead.
class UseFiles {
 public:
  explicit UseFiles(std::shared_ptr<const CacheFolder> folder);
  ~UseFiles();
  UseFiles(const UseFiles&) = delete;
  UseFiles& operator=(const UseFiles&) = delete;

  // A use file of this process, of distinct blocks.
  // Errors: forked; those of the system calls (resource_limit: the disk is full).
  Result<std::unique_ptr<UseWriter>> create(std::span<const NextUse> blocks,
                                            const UseOptions& options);

  // Looks for new files and dead ones: a listing, and a question per file. Errors leave what was
  // known.
  void refresh();
  std::size_t size() const;  // living files, after the last refresh()

  // Seconds until the next use of `block` by any living loader (positions / rate; a loader without
  // a rate is taken to be as fast as the mean of the others). `own` with `own_next` says what
  // follows the use at hand, instead of what stands in that loader's file.
  double seconds_until(const BlockKey& block, const UseWriter* own = nullptr,
                       std::uint64_t own_next = kNeverUsed) const;
  // The same for many: `blocks` sorted by key, `seconds` as long.
  void seconds_until(std::span<const BlockKey> blocks, std::span<double> seconds) const;

 private:
  std::vector<std::shared_ptr<UseMap>> living() const;

  std::shared_ptr<UseRegistry> registry_;
};

}  // namespace headpond
