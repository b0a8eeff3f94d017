#include "headpond/block.h"

#include <bit>
#include <utility>

#include "base/digest.h"

namespace headpond {
namespace {

// Digested as it lies in memory.
static_assert(sizeof(BlockPart) == 32 && std::endian::native == std::endian::little);

}  // namespace

Digest object_digest(std::string_view uri, const ObjectVersion& version) {
  return DigestBuilder()
      .add(uri)
      .add(version.size)
      .add(static_cast<std::uint64_t>(version.mtime_ns))
      .add(version.inode)
      .add(version.etag)
      .add(std::uint64_t{version.weak})
      .finish();
}

BlockKey block_key(std::span<const BlockPart> parts) { return {digest(std::as_bytes(parts))}; }

std::uint64_t Block::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& extent : extents) sum += extent.range.size();
  return sum;
}

Block make_block(std::vector<BlockExtent> extents) {
  std::vector<BlockPart> parts;
  parts.reserve(extents.size());
  for (const auto& extent : extents)
    parts.push_back({object_digest(extent.uri, extent.version), extent.range});
  return {block_key(parts), std::move(extents)};
}

}  // namespace headpond
