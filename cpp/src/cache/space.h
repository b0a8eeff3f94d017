#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache_folder.h"
#include "headpond/block.h"
#include "headpond/result.h"
#include "io/fork_mark.h"

namespace headpond {

class FillClaims;
class Space;
struct SpaceImage;
struct SpaceSlot;

struct SpaceOptions {
  std::uint64_t limit_bytes = 0;  // blocks and fill files of all processes together; > 0
  std::uint64_t floor_bytes = 0;  // free space of the disk that is left to others
  std::string boot_id = {};       // empty: the kernel's
};

// Room for one file in the making. It returns when destroyed: by then the fill file is gone (or
// published). A dead process's room returns once its fill files are removed.
class Reservation {
 public:
  Reservation(Reservation&& other) noexcept
      : space_(std::exchange(other.space_, nullptr)), bytes_(other.bytes_) {}
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation();
  std::uint64_t bytes() const { return bytes_; }

 private:
  friend class Space;
  friend class Publication;
  Reservation(Space& space, std::uint64_t bytes) : space_(&space), bytes_(bytes) {}
  Space* space_;
  std::uint64_t bytes_;
};

// A block on its way from reserved to published. Made before the rename; renamed() after one that
// took effect. Destroyed without it, the block leaves the total again and its room returns (so the
// fill file is gone by then, as with Reservation).
class Publication {
 public:
  Publication(Publication&& other) noexcept
      : reservation_(std::move(other.reservation_)), key_(other.key_) {}
  Publication& operator=(Publication&&) = delete;
  ~Publication();
  void renamed();

 private:
  friend class Space;
  Publication(Reservation reservation, const BlockKey& key)
      : reservation_(std::move(reservation)), key_(key) {}
  Reservation reservation_;
  BlockKey key_;
};

// A block on its way out. Made before the unlink, and told what came of it; destroyed without
// that, the block is still there.
class Removal {
 public:
  Removal(Removal&& other) noexcept
      : space_(std::exchange(other.space_, nullptr)), key_(other.key_), bytes_(other.bytes_) {}
  Removal& operator=(Removal&&) = delete;
  ~Removal();
  void unlinked(std::uint64_t file_bytes);
  void gone();  // somebody else had removed it

 private:
  friend class Space;
  Removal(Space& space, const BlockKey& key, std::uint64_t bytes)
      : space_(&space), key_(key), bytes_(bytes) {}
  Space* space_;
  BlockKey key_;
  std::uint64_t bytes_;
};

// What happened to a block, in any process.
struct SpaceEvent {
  BlockKey key;
  std::uint64_t bytes = 0;
  bool published = false;  // else removed
  bool operator==(const SpaceEvent&) const = default;
};

// How far somebody has followed the log.
struct LogPlace {
  std::uint64_t generation = 0;
  std::uint64_t position = 0;
};

// The accounts of a cache directory: a hard limit over all processes, and a log of what they did.
// Bytes are those that files take on the disk, in whole 4 KiB.
//
// reserve() adds to this process's slot, then checks the sum of all slots and the published total,
// and rolls back when that is beyond the limit: so what is reserved and published together never
// exceeds it. Of several limits the smallest of a living process holds, of several floors the
// largest. Numbers move so that a kill at any instant can only overstate; slots of dead processes
// are emptied when room is short, and when an operation was cut off everybody is asked to rescan
// (wants_rescan), which mends the total. A file that is damaged, foreign or of an earlier boot is
// not trusted: nothing is granted until a rescan has counted what is there. Nor is anything by
// accounts whose file was deleted under them.
//
// One object per process and directory (its locks are the process's), made through the process's
// one open cache; it outlives what it gave out. Safe to call from any thread. In a forked child
// nothing is granted and nothing of the parent's is touched.
class Space {
 public:
  // Waits at most 5 s for another process that is opening.
  // Errors: resource_limit (1024 processes have it open, or the disk is full); timed_out;
  // invalid_argument (limit 0); unsupported (a process of a version with other accounts lives);
  // those of the system calls.
  static Result<std::unique_ptr<Space>> open(std::shared_ptr<const CacheFolder> folder,
                                             FillClaims& claims, SpaceOptions options);
  ~Space();
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;

  // Room for a file, or nullopt: shortage() says how much must go.
  std::optional<Reservation> reserve(std::uint64_t bytes);
  // Bytes that must be removed before reserve(bytes) can succeed; 0: none; ~0: no removal helps.
  std::uint64_t shortage(std::uint64_t bytes) const;
  // False until the first rescan of a directory whose accounts were not trusted: reserve() refuses.
  bool counted() const;

  Publication publish(Reservation reservation, const BlockKey& key);
  Removal remove(const BlockKey& key, std::uint64_t bytes);
  // Something was removed without a Removal (a file found damaged): everybody is to rescan.
  void distrust();

  struct Usage {
    std::uint64_t limit_bytes = 0;
    std::uint64_t floor_bytes = 0;
    std::uint64_t published_bytes = 0;
    std::uint64_t reserved_bytes = 0;
    std::uint64_t processes = 0;  // slots in use; dead ones until they are found
  };
  Usage usage() const;

  // The log. A rescan takes a place, lists the folder, then applies what follow() tells: the result
  // is what is there, for each event comes once, in an order that agrees with the folder per block
  // (a block may be listed that is just gone, never the other way round).
  LogPlace log_end() const;
  // Appends what happened since `place` and moves it. False: events were lost (the follower is
  // 32,768 behind, or a process died in mid-operation): rescan.
  bool follow(LogPlace& place, std::vector<SpaceEvent>& events);
  bool wants_rescan() const;
  // Sets the total to what a rescan found: `listed_bytes` at `place`. False: something happened
  // since or is happening; follow and try again. One process at a time succeeds.
  bool mend(const LogPlace& place, std::uint64_t listed_bytes);

  // Empties the slots of dead processes; whether there were any. Done by itself when room is short.
  bool reap();

 private:
  friend class Reservation;
  friend class Publication;
  friend class Removal;

  Space(std::shared_ptr<const CacheFolder> folder, FillClaims& claims, SpaceOptions options);
  Result<void> open_file();
  Result<void> lock_opening();
  Result<void> map_file();
  Result<void> check_image();
  Result<void> claim_slot();
  bool lock_byte(std::uint64_t byte, std::uint64_t bytes = 1);
  void unlock_byte(std::uint64_t byte, std::uint64_t bytes = 1);
  bool replaced() const;
  bool try_reserve(std::uint64_t bytes);
  bool empty_slot(SpaceSlot& slot);
  bool reap_locked();
  bool quiet(std::span<std::uint64_t> begun) const;
  void append(const SpaceEvent& event);

  std::shared_ptr<const CacheFolder> folder_;
  FillClaims& claims_;
  SpaceOptions options_;
  ForkMark fork_;
  CacheFd fd_;
  SpaceImage* image_ = nullptr;
  SpaceSlot* slot_ = nullptr;  // ours
  mutable std::mutex mutex_;   // locks on bytes of the file are the process's, not a thread's
};

}  // namespace headpond
