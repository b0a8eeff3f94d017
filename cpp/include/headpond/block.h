#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headpond/byte_range.h"
#include "headpond/digest.h"
#include "headpond/object_version.h"

namespace headpond {

// The unit of checking: each cell of a block has a checksum of its own.
inline constexpr std::uint64_t kCellBytes = 4096;

// Rounded up: cells that so many bytes begin, and the bytes of those.
constexpr std::uint64_t cells_of(std::uint64_t bytes) {
  return (bytes + kCellBytes - 1) / kCellBytes;
}
constexpr std::uint64_t whole_cells(std::uint64_t bytes) { return cells_of(bytes) * kCellBytes; }

// A range of one object version. `uri` is the object's identity: without userinfo and without
// the parameters of signatures, which change while the bytes do not.
struct BlockExtent {
  std::string uri;
  ObjectVersion version;
  ByteRange range;

  bool operator==(const BlockExtent&) const = default;
};

// Names a block: a digest over all of its extents. Two blocks may have one key only by a
// collision of 128 bits, and then are told apart by their extents.
struct BlockKey {
  Digest digest;

  std::string hex() const { return digest.hex(); }
  auto operator<=>(const BlockKey&) const = default;
};

// An extent as it enters a key: the digest of its object is made once, so that a key costs no
// string work per read.
struct BlockPart {
  Digest object;
  ByteRange range;
};

Digest object_digest(std::string_view uri, const ObjectVersion& version);
BlockKey block_key(std::span<const BlockPart> parts);

// The unit of caching: a range of a large object version, or the whole of some small ones. Its
// payload is the bytes of the extents, one after another.
struct Block {
  BlockKey key;
  std::vector<BlockExtent> extents;

  std::uint64_t bytes() const;
};

// The block of these extents, with its key.
Block make_block(std::vector<BlockExtent> extents);

}  // namespace headpond

template <>
struct std::hash<headpond::BlockKey> {
  std::size_t operator()(const headpond::BlockKey& key) const noexcept {
    return std::hash<headpond::Digest>()(key.digest);
  }
};
