#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "headpond/byte_budget.h"
#include "headpond/slab.h"
#include "headpond/store.h"

namespace headpond {

// The bytes of one shard in memory, block by block. Different blocks may be put and read
// by different threads at once.
class HeldShard {
 public:
  HeldShard(std::uint32_t object, std::uint64_t size, std::uint64_t block_bytes)
      : object_(object),
        size_(size),
        block_bytes_(block_bytes),
        blocks_((size + block_bytes - 1) / block_bytes) {}

  std::uint32_t object() const { return object_; }
  std::uint64_t size() const { return size_; }
  std::uint64_t block_bytes() const { return block_bytes_; }
  std::uint64_t block_count() const { return blocks_.size(); }
  std::uint64_t block_start(std::uint64_t block) const { return block * block_bytes_; }
  std::uint64_t block_size(std::uint64_t block) const;
  std::uint64_t block_of(std::uint64_t offset) const { return offset / block_bytes_; }

  bool has(std::uint64_t block) const { return blocks_[block].memory != nullptr; }
  // A block's memory and its credits, to be let go without locks held.
  struct Block {
    std::vector<ByteBudget::Credit> credits;
    std::shared_ptr<Slab> memory;
  };
  void put(std::uint64_t block, Block memory) { blocks_[block] = std::move(memory); }
  Block take(std::uint64_t block) { return std::exchange(blocks_[block], {}); }

  // The range lies in blocks that are there.
  void copy(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  const std::uint32_t object_;
  const std::uint64_t size_;
  const std::uint64_t block_bytes_;
  std::vector<Block> blocks_;
};

// The whole shards that batches copy from, by object. Owned by whoever keeps their groups.
// Safe from any thread.
class HeldShards {
 public:
  explicit HeldShards(std::size_t objects) : shards_(objects) {}

  // Copies the pieces of an object; false when it is not held.
  bool copy(std::uint32_t object, std::span<const Piece> pieces) const;

  std::shared_ptr<HeldShard> find(std::uint32_t object) const;
  void put(const std::shared_ptr<HeldShard>& shard);

 private:
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<HeldShard>> shards_;
};

}  // namespace headpond
