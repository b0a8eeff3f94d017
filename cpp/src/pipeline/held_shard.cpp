#include "pipeline/held_shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace headpond {

std::uint64_t HeldShard::block_size(std::uint64_t block) const {
  return std::min(block_bytes_, size_ - block_start(block));
}

void HeldShard::copy(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const std::uint64_t block = block_of(offset);
    const std::uint64_t at = offset - block_start(block);
    const auto bytes = std::min<std::uint64_t>(out.size(), block_size(block) - at);
    std::memcpy(out.data(), blocks_[block].memory->part(0).data() + at, bytes);
    out = out.subspan(bytes);
    offset += bytes;
  }
}

bool HeldShards::copy(std::uint32_t object, std::span<const Piece> pieces) const {
  const auto shard = find(object);
  if (shard == nullptr) return false;
  for (const Piece& piece : pieces) shard->copy(piece.offset, piece.out);
  return true;
}

std::shared_ptr<HeldShard> HeldShards::find(std::uint32_t object) const {
  const std::lock_guard lock(mutex_);
  return shards_[object].lock();
}

void HeldShards::put(const std::shared_ptr<HeldShard>& shard) {
  const std::lock_guard lock(mutex_);
  shards_[shard->object()] = shard;
}

}  // namespace headpond
