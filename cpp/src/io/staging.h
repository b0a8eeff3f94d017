#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <vector>

namespace headpond {

// Aligned blocks that O_DIRECT and fixed-buffer reads land in, before they are
// copied to where they belong. Not inherited by forked children (MADV_DONTFORK):
// a page under DMA that a child also maps could be replaced under the read (open(2), NOTES).
//
// Made at the first use; blocks are touched only when used, unless registered.
// For one thread.
class Staging {
 public:
  static constexpr std::size_t kBlockBytes = 512 << 10;
  static constexpr std::size_t kAlignment = 4096;

  Staging() = default;
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // False: no memory, or no way to keep it from children.
  bool make(std::size_t blocks);
  bool made() const { return memory_ != nullptr; }

  // The number of a free block, or -1. Registered ones first, then the last used.
  int take();
  void give_back(int block);
  std::span<std::byte> bytes(int block) const;
  std::size_t free_blocks() const { return free_.size(); }

  // The first `count` blocks, for registering.
  std::vector<struct iovec> buffers(std::size_t count) const;

 private:
  std::byte* memory_ = nullptr;
  std::size_t blocks_ = 0;
  std::vector<int> free_;  // the next one at the end
};

}  // namespace headpond
