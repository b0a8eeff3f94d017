#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>

#include "cache/block_format.h"
#include "cache/cache_ops.h"
#include "headpond/block.h"
#include "headpond/result.h"
#include "headpond/store.h"

namespace headpond {

// The sums of a block's cells, 0 where a cell is not there: of a block that is complete, or of one
// to which other threads add.
class CellSums {
 public:
  CellSums(std::span<const std::uint32_t> complete) : complete_(complete.data()) {}  // NOLINT
  CellSums(std::span<const std::atomic<std::uint32_t>> growing)
      : growing_(growing.data()) {}  // NOLINT
  // Acquire: who sees a sum sees its bytes in the file.
  std::uint32_t operator[](std::uint64_t cell) const {
    return growing_ != nullptr ? growing_[cell].load(std::memory_order_acquire) : complete_[cell];
  }

 private:
  const std::uint32_t* complete_ = nullptr;
  const std::atomic<std::uint32_t>* growing_ = nullptr;
};

// A file that holds a block's payload. All of it outlives the call that it is given to.
struct CellFile {
  CacheOps& ops;
  int fd;
  const BlockKey& key;
  const BlockLayout& layout;
  CellSums sums;
};

// What became of pieces: `filled` leading ones hold checked bytes. Then either all did, or the
// next one is not in memory (Wait::never), or it failed.
struct CellsRead {
  std::size_t filled = 0;
  bool wrong = false;  // a cell does not match its sum, or the file ends before it
  int error = 0;       // -errno of preadv
};

// Reads pieces that lie within the payload, each straight into its memory; what the cells at their
// ends hold besides goes into a scratch. Pieces that lie one behind the other are read together.
CellsRead read_cells(const CellFile& file, std::span<const Piece> pieces, Wait wait);

// Whether every piece lies within the payload.
bool within(std::span<const Piece> pieces, const BlockLayout& layout);

// Reads cells [first, stop) and calls `each` with each one and whether it matches its sum.
// 0 or -errno of preadv.
int check_cells(const CellFile& file, std::uint64_t first, std::uint64_t stop,
                const std::function<void(std::uint64_t cell, bool matches)>& each);

}  // namespace headpond
