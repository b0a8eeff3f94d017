#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "cache/block_file.h"
#include "cache/block_format.h"
#include "cache/cache_folder.h"
#include "headpond/block.h"
#include "headpond/result.h"

namespace headpond {

class FillClaims;

// The right to open the fill file of one block in this process; goes back when destroyed.
class FillClaim {
 public:
  FillClaim(FillClaim&& other) noexcept
      : claims_(std::exchange(other.claims_, nullptr)), key_(other.key_) {}
  FillClaim& operator=(FillClaim&&) = delete;
  ~FillClaim();
  const BlockKey& key() const { return key_; }

 private:
  friend class FillClaims;
  FillClaim(FillClaims& claims, const BlockKey& key) : claims_(&claims), key_(key) {}
  FillClaims* claims_;
  BlockKey key_;
};

// Which fill files this process has open: one set per process and cache directory. Record locks
// belong to the process, and closing any descriptor of a file drops them, so a fill file has one
// descriptor at most. Safe to call from any thread; must outlive its claims.
class FillClaims {
 public:
  // nullopt: somebody in this process has it.
  std::optional<FillClaim> claim(const BlockKey& key);

 private:
  friend class FillClaim;
  std::mutex mutex_;
  std::unordered_set<BlockKey> held_;
};

class FillFile;

// Changes whenever the holder of a fill file has written to it. Only compared.
struct FillStamp {
  std::uint64_t inode = 0;
  std::uint64_t disk_blocks = 0;
  std::int64_t mtime_ns = 0;
  bool operator==(const FillStamp&) const = default;
};

struct FillBusy {  // another process fills it
  FillStamp stamp;
};

// What begin() finds. A block that is published meanwhile comes open.
using FillBegin = std::variant<std::unique_ptr<FillFile>, PublishedBlock, FillBusy>;

// A block in the making, held by this process alone.
//
// Its record lock is the sign of life: it goes with the process, by whatever end. Data are written
// before the sums that make them valid, so a successor (or a reader of this process) trusts
// exactly the whole cells. write() may run on several threads for different cells, also beside
// read() and the questions; publish() and abandon() once, after the last write has returned.
// Destroyed without either it leaves the file for a successor. Not to be used in a forked child.
class FillFile {
 public:
  // Never waits. `claim` is the block's; it goes back when the result holds no FillFile.
  // Errors: invalid_argument (see layout_of); those of the system calls: resource_limit when the
  // disk or a quota is full. Nothing is left open then, but a file may be left for a successor.
  static Result<FillBegin> begin(std::shared_ptr<const CacheFolder> folder, const Block& block,
                                 FillClaim claim);
  ~FillFile();
  FillFile(const FillFile&) = delete;
  FillFile& operator=(const FillFile&) = delete;

  const BlockKey& key() const { return claim_.key(); }
  const BlockLayout& layout() const { return layout_; }

  // Bytes of the payload that are there, whole cells only; after begin(): of a predecessor.
  std::uint64_t whole_bytes() const;
  bool complete() const { return whole_cells_.load(std::memory_order_acquire) == layout_.cells; }
  // Is every cell that [start, stop) of the payload touches there?
  bool has(ByteRange payload) const;
  // What is not there, in order: ranges of the payload whose ends are those of cells.
  std::vector<ByteRange> missing() const;

  // Writes whole cells: `offset` is a multiple of kCellBytes, and so is the size unless the payload
  // ends there. Cells that are there already may be written again with the same bytes.
  // Errors: those of pwrite(2); the cells then count as not written.
  Result<void> write(std::uint64_t offset, std::span<const std::byte> bytes);

  // As PublishedBlock::read, of cells that are there. Errors: also invalid_argument when one is
  // not.
  Result<void> read(std::span<const Piece> pieces) const;

  // Makes the block visible to everybody. Every cell is there. `before_rename` runs right before
  // that, so that accounts never miss a published block. False: it was published already by
  // somebody else, and this file is gone; what before_rename did is to be taken back.
  // Errors: internal (not complete); those of the system calls: the file is then left.
  Result<bool> publish(const std::function<void()>& before_rename);
  // Removes the file.
  void abandon();

 private:
  FillFile(std::shared_ptr<const CacheFolder> folder, FillClaim claim, CacheFd fd,
           BlockLayout layout);
  static Result<FillBegin> begin_locked(std::shared_ptr<const CacheFolder> folder,
                                        const Block& block, FillClaim claim, CacheFd fd,
                                        const BlockLayout& layout);
  Error error_of(int result, const char* doing) const;
  bool resume(std::span<const std::byte> head);
  void take_whole_cells(std::span<const std::uint32_t> sums);
  Result<void> start(std::span<const std::byte> head);

  std::shared_ptr<const CacheFolder> folder_;
  FillClaim claim_;
  CacheFd fd_;  // closed before the claim goes back
  BlockLayout layout_;
  // Sums of the whole cells, 0 elsewhere. Release: who sees a sum sees its bytes in the file.
  std::vector<std::atomic<std::uint32_t>> sums_;
  std::atomic<std::uint64_t> whole_cells_ = 0;
};

// Removes the fill files that no living process holds, and returns their bytes. Files that this
// process has claimed are left alone, and none of them can be claimed while it is looked at.
Result<std::uint64_t> remove_dead_fills(const CacheFolder& folder, FillClaims& claims);

}  // namespace headpond
