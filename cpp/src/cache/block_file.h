#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/block_format.h"
#include "cache/cache_folder.h"
#include "headpond/block.h"
#include "headpond/result.h"
#include "headpond/store.h"

namespace headpond {

// A published block, open for reading. Its bytes stay readable when it is evicted meanwhile.
//
// Every read checks the cells it touches; what does not match is never given out. A file found
// wrong is removed from the folder and counted there (CacheFolder::on_damaged). Reads may run on
// several threads at once.
class PublishedBlock {
 public:
  // nullopt: a miss (not there, or not a whole file of this very block).
  // Errors: those of the system calls (descriptors used up, EIO); to the reader a miss as well.
  static Result<std::optional<PublishedBlock>> open(std::shared_ptr<const CacheFolder> folder,
                                                    const Block& block);
  // Whatever block lies under this key: for tools, which do not know the extents.
  static Result<std::optional<PublishedBlock>> open(std::shared_ptr<const CacheFolder> folder,
                                                    const BlockKey& key, Block& found);

  PublishedBlock(PublishedBlock&&) noexcept = default;
  PublishedBlock& operator=(PublishedBlock&&) noexcept = default;

  const BlockKey& key() const { return key_; }
  std::uint64_t bytes() const { return layout_.payload_bytes; }

  // Fills pieces (offsets count in the payload) and returns how many leading ones were filled:
  // fewer than asked only with Wait::never, where the next one is not in memory. Neighbours that
  // lie one behind the other are read together.
  // Errors: invalid_argument (beyond the payload); corrupt_data (a cell is wrong or the file was
  // cut: the block is gone from the folder); those of preadv(2). Pieces from the failing one on
  // hold anything.
  Result<std::size_t> read(std::span<const Piece> pieces, Wait wait) const;

  // Reads all of it; the cells that are wrong, in order. Removes nothing.
  // Errors: those of preadv(2).
  Result<std::vector<std::uint64_t>> wrong_cells() const;

 private:
  PublishedBlock(std::shared_ptr<const CacheFolder> folder, CacheFd fd, BlockKey key,
                 BlockLayout layout, std::vector<std::uint32_t> sums);

  std::shared_ptr<const CacheFolder> folder_;
  CacheFd fd_;
  BlockKey key_;
  BlockLayout layout_;
  std::vector<std::uint32_t> sums_;
};

}  // namespace headpond
