#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "headpond/block.h"
#include "headpond/result.h"

namespace headpond {

// The file of a block, format v1: docs/cache-format.md describes each byte.
//
// A head (64 fixed bytes and the extents), a table with one sum per cell, zeros up to a multiple
// of 4 KiB, the payload. All of it but the table and the payload follows from the block, so a
// reader that knows which block it wants compares bytes.

inline constexpr std::size_t kBlockFixedBytes = 64;
inline constexpr std::uint64_t kMaxPayloadBytes = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kMaxExtentBytes = std::uint64_t{1} << 28;

// Where the parts of a block's file lie.
struct BlockLayout {
  std::uint32_t head_bytes = 0;    // fixed part and extents; the table begins here
  std::uint32_t header_bytes = 0;  // the payload begins here
  std::uint32_t cells = 0;
  std::uint64_t payload_bytes = 0;

  std::uint64_t file_bytes() const { return header_bytes + payload_bytes; }
  // Bytes of one cell: less than kCellBytes only in the last.
  std::size_t cell_bytes(std::uint64_t cell) const;
};

// What the file of `block` takes, for reservations: its size in whole cells.
std::uint64_t disk_bytes(const BlockLayout& layout);

// Errors: invalid_argument for a block that the format cannot hold (no extent, no byte, a range
// that ends before it starts, payload or extents above the limits).
Result<BlockLayout> layout_of(const Block& block);

// The head of the file: layout_of(block).head_bytes bytes, ready to write. The block has a layout.
std::vector<std::byte> encode_head(const Block& block);

// Which block a file says it holds. Takes the header, at least `header_bytes` of it; any bytes are
// safe. Errors: corrupt_data (also: an unknown format).
struct BlockHeader {
  Block block;
  BlockLayout layout;
};
Result<BlockHeader> decode_header(std::span<const std::byte> header);
// How many bytes decode_header needs, from the first kBlockFixedBytes of a file.
Result<std::uint32_t> header_bytes_of(std::span<const std::byte> fixed);

// The seed of a cell's sum: other for each block and place, so that the right bytes in the wrong
// place, or in another block's file, do not pass.
std::uint32_t cell_seed(const BlockKey& key, std::uint64_t cell);
// From crc32c(bytes of the cell, cell_seed(...)) to what the table holds: never 0, which says that
// the cell was not written.
inline std::uint32_t cell_sum(std::uint32_t crc) { return crc == 0 ? 1 : crc; }
std::uint32_t cell_sum(const BlockKey& key, std::uint64_t cell, std::span<const std::byte> bytes);

}  // namespace headpond
