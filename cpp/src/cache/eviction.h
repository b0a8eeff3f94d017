#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "cache/cache_folder.h"
#include "cache/space.h"
#include "cache/use_file.h"
#include "headpond/block.h"
#include "headpond/result.h"

namespace headpond {

// A block that wants in. `own_next`: its next use after the one at hand, by the loader that writes
// `own`; the use files say when others want it. A block that nobody will use displaces nothing.
struct Incoming {
  BlockKey key;
  const UseWriter* own = nullptr;
  std::uint64_t own_next = kNeverUsed;
};

// Decides which block goes: the one whose next use is last, one that nobody will use before all.
//
// It knows what is there by a listing of the folder (rescan) and the log of Space. With n blocks it
// looks at all of them once per max(1, n / 1024) calls and then takes the farthest n / 1024 one by
// one: below 2,048 blocks each choice is exact, above it is as old as that many calls. A look costs
// one pass over the blocks and over each use file; memory is 36 bytes a block, 84 while a listing
// is made. Safe to call from any thread.
class Eviction {
 public:
  Eviction(std::shared_ptr<const CacheFolder> folder, Space& space, UseFiles& uses);
  Eviction(Eviction&&) = delete;

  // Room for a file of `bytes`, after removing just what that takes (the double at most, when
  // others take the room that was made or the disk frees it late). nullopt: it would displace
  // something needed sooner, or there is no listing yet; the caller reads past the cache.
  // Errors: the file system refused 4 removals (each block is then left alone until the next
  // rescan). A reader that has the file open keeps its bytes.
  Result<std::optional<Reservation>> make_room(std::uint64_t bytes, const Incoming& incoming);

  // Removes as many of the farthest blocks as limit and floor are short of at the call, needed or
  // not: after somebody opened with a smaller limit, or others filled the disk. `proceed` is asked
  // now and then.
  // Errors: as make_room(); cancelled.
  Result<void> shrink(const std::function<bool()>& proceed);

  // True when somebody should call rescan(), in the background: room was short and nothing is
  // listed, events were lost, or the accounts are in doubt.
  bool wants_rescan() const;
  // Lists the folder and mends the accounts; `proceed` is asked now and then. make_room() goes on
  // with the old listing meanwhile. One at a time.
  // Errors: cancelled; those of the listing: what was known stays.
  Result<void> rescan(const std::function<bool()>& proceed);

  struct Counts {
    std::uint64_t evicted_blocks = 0;
    std::uint64_t evicted_bytes = 0;
    std::uint64_t refused = 0;          // incoming blocks that were not worth it
    std::uint64_t gone = 0;             // chosen, and already removed by somebody else
    std::uint64_t failed_removals = 0;  // refused by the file system
    std::uint64_t listed_blocks = 0;
    std::uint64_t listed_bytes = 0;
  };
  Counts counts() const;

 private:
  struct Listing {
    std::vector<BlockKey> keys;  // sorted
    std::vector<std::uint64_t> bytes;
    std::uint64_t sum = 0;
  };
  void follow();
  void merge();
  bool choose(std::uint64_t shortage, double sooner, std::vector<SpaceEvent>& chosen);
  void look(std::uint64_t shortage);
  Result<std::uint64_t> remove(std::span<const SpaceEvent> chosen, int& failed);

  std::shared_ptr<const CacheFolder> folder_;
  Space& space_;
  UseFiles& uses_;

  mutable std::mutex mutex_;
  bool needed_ = false;  // somebody asked for a choice
  bool listed_ = false;
  bool lost_ = false;  // events were
  Listing listing_;
  LogPlace place_;
  std::vector<SpaceEvent> events_;  // since the listing, in order
  // Of the last look: the farthest, last one first to go; how many calls it stands for.
  std::vector<SpaceEvent> candidates_;
  std::size_t calls_left_ = 0;
  std::vector<double> seconds_;
  std::unordered_set<BlockKey> stuck_;  // could not be removed
  Counts counts_;
};

}  // namespace headpond
