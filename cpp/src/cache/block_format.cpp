#include "cache/block_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/digest.h"

namespace headpond {
namespace {

static_assert(std::endian::native == std::endian::little, "on-disk integers are read as they lie");

constexpr std::array<char, 8> kMagic = {'h', 'p', 'b', 'l', 'o', 'c', 'k', '1'};

// The fixed part of the head, as it lies in the file.
struct Fixed {
  std::array<char, 8> magic = kMagic;
  std::uint32_t header_bytes = 0;
  std::uint32_t extents = 0;
  std::uint64_t payload_bytes = 0;
  std::uint32_t extents_bytes = 0;
  std::uint32_t cells = 0;
  std::uint64_t key_high = 0;
  std::uint64_t key_low = 0;
  std::array<std::uint32_t, 3> zero = {};
  std::uint32_t sum = 0;  // of all before it and the extents
};
static_assert(sizeof(Fixed) == kBlockFixedBytes && offsetof(Fixed, sum) == 60);

// What stands before each extent's texts.
struct FixedExtent {
  std::uint32_t uri_bytes = 0;
  std::uint32_t etag_bytes = 0;
  std::uint64_t start = 0;
  std::uint64_t stop = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::uint64_t inode = 0;
  std::uint32_t weak = 0;
  std::uint32_t zero = 0;
};
static_assert(sizeof(FixedExtent) == 56);

constexpr std::uint64_t whole_words(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

std::uint64_t bytes_of(const BlockExtent& extent) {
  return whole_words(sizeof(FixedExtent) + extent.uri.size() + extent.version.etag.size());
}

// 0 for what a header cannot describe.
BlockLayout layout_of_parts(std::uint64_t extents_bytes, std::uint64_t payload_bytes) {
  BlockLayout layout;
  if (extents_bytes == 0 || extents_bytes > kMaxExtentBytes) return layout;
  if (payload_bytes == 0 || payload_bytes > kMaxPayloadBytes) return layout;
  layout.payload_bytes = payload_bytes;
  layout.cells = static_cast<std::uint32_t>(cells_of(payload_bytes));
  layout.head_bytes = static_cast<std::uint32_t>(kBlockFixedBytes + extents_bytes);
  layout.header_bytes = static_cast<std::uint32_t>(
      whole_cells(layout.head_bytes + layout.cells * sizeof(std::uint32_t)));
  return layout;
}

std::uint32_t sum_of_head(std::span<const std::byte> head) {
  return crc32c(head.subspan(kBlockFixedBytes), crc32c(head.first(offsetof(Fixed, sum))));
}

Error corrupt(const char* what) {
  return Error(ErrorCode::corrupt_data, std::string("not a block of this format: ") + what);
}

Fixed read_fixed(std::span<const std::byte> bytes) {
  Fixed fixed;
  std::memcpy(&fixed, bytes.data(), sizeof(fixed));
  return fixed;
}

// The layout a fixed part describes; no cells when it contradicts itself.
BlockLayout layout_of_fixed(const Fixed& fixed) {
  if (fixed.magic != kMagic || fixed.extents_bytes % 8 != 0) return {};
  const BlockLayout layout = layout_of_parts(fixed.extents_bytes, fixed.payload_bytes);
  if (layout.cells != fixed.cells || layout.header_bytes != fixed.header_bytes) return {};
  if (fixed.extents == 0 || fixed.extents > fixed.extents_bytes / sizeof(FixedExtent)) return {};
  return layout;
}

// Takes one extent off the front of `bytes`; false when it does not fit.
bool take_extent(std::span<const std::byte>& bytes, BlockExtent& extent) {
  FixedExtent fixed;
  if (bytes.size() < sizeof(fixed)) return false;
  std::memcpy(&fixed, bytes.data(), sizeof(fixed));
  const std::uint64_t text = std::uint64_t{fixed.uri_bytes} + fixed.etag_bytes;
  const std::uint64_t size = whole_words(sizeof(fixed) + text);
  if (size > bytes.size() || fixed.stop < fixed.start || fixed.weak > 1) return false;
  const auto* const at = reinterpret_cast<const char*>(bytes.data()) + sizeof(fixed);
  extent.uri.assign(at, fixed.uri_bytes);
  extent.version.etag.assign(at + fixed.uri_bytes, fixed.etag_bytes);
  extent.version.size = fixed.size;
  extent.version.mtime_ns = fixed.mtime_ns;
  extent.version.inode = fixed.inode;
  extent.version.weak = fixed.weak == 1;
  extent.range = {fixed.start, fixed.stop};
  bytes = bytes.subspan(size);
  return true;
}

std::byte* put_extent(std::byte* out, const BlockExtent& extent) {
  FixedExtent fixed;
  fixed.uri_bytes = static_cast<std::uint32_t>(extent.uri.size());
  fixed.etag_bytes = static_cast<std::uint32_t>(extent.version.etag.size());
  fixed.start = extent.range.start;
  fixed.stop = extent.range.stop;
  fixed.size = extent.version.size;
  fixed.mtime_ns = extent.version.mtime_ns;
  fixed.inode = extent.version.inode;
  fixed.weak = extent.version.weak ? 1 : 0;
  std::memcpy(out, &fixed, sizeof(fixed));
  std::byte* at = out + sizeof(fixed);
  at = std::copy_n(reinterpret_cast<const std::byte*>(extent.uri.data()), extent.uri.size(), at);
  std::copy_n(reinterpret_cast<const std::byte*>(extent.version.etag.data()),
              extent.version.etag.size(), at);
  return out + bytes_of(extent);
}

}  // namespace

std::size_t BlockLayout::cell_bytes(std::uint64_t cell) const {
  return static_cast<std::size_t>(std::min(kCellBytes, payload_bytes - cell * kCellBytes));
}

std::uint64_t disk_bytes(const BlockLayout& layout) { return whole_cells(layout.file_bytes()); }

Result<BlockLayout> layout_of(const Block& block) {
  std::uint64_t extents_bytes = 0, payload_bytes = 0;
  for (const auto& extent : block.extents) {
    if (extent.range.stop < extent.range.start)
      return Error(ErrorCode::invalid_argument, "a block's extent ends before it starts");
    extents_bytes += bytes_of(extent);
    // Sums of sizes near 2^64 do not wrap to small ones.
    payload_bytes = extent.range.size() > kMaxPayloadBytes
                        ? kMaxPayloadBytes + 1
                        : std::min(payload_bytes + extent.range.size(), kMaxPayloadBytes + 1);
  }
  const BlockLayout layout = layout_of_parts(extents_bytes, payload_bytes);
  if (layout.cells == 0) {
    return Error(ErrorCode::invalid_argument,
                 "a block holds 1 byte to 1 GiB of at least one object, and not " +
                     std::to_string(payload_bytes) + " bytes of " +
                     std::to_string(block.extents.size()));
  }
  return layout;
}

std::vector<std::byte> encode_head(const Block& block) {
  std::uint64_t extents_bytes = 0;
  for (const auto& extent : block.extents) extents_bytes += bytes_of(extent);
  const BlockLayout layout = layout_of_parts(extents_bytes, block.bytes());
  Fixed fixed;
  fixed.header_bytes = layout.header_bytes;
  fixed.extents = static_cast<std::uint32_t>(block.extents.size());
  fixed.payload_bytes = layout.payload_bytes;
  fixed.extents_bytes = static_cast<std::uint32_t>(extents_bytes);
  fixed.cells = layout.cells;
  fixed.key_high = block.key.digest.high;
  fixed.key_low = block.key.digest.low;

  std::vector<std::byte> head(kBlockFixedBytes + extents_bytes);
  std::memcpy(head.data(), &fixed, sizeof(fixed));
  std::byte* at = head.data() + kBlockFixedBytes;
  for (const auto& extent : block.extents) at = put_extent(at, extent);
  const std::uint32_t sum = sum_of_head(head);
  std::memcpy(head.data() + offsetof(Fixed, sum), &sum, sizeof(sum));
  return head;
}

Result<std::uint32_t> header_bytes_of(std::span<const std::byte> bytes) {
  if (bytes.size() < kBlockFixedBytes) return corrupt("too short");
  const BlockLayout layout = layout_of_fixed(read_fixed(bytes));
  if (layout.cells == 0) return corrupt("its sizes contradict each other");
  return layout.header_bytes;
}

Result<BlockHeader> decode_header(std::span<const std::byte> header) {
  const auto header_bytes = header_bytes_of(header);
  if (!header_bytes) return header_bytes.error();
  if (header.size() < *header_bytes) return corrupt("its header is cut");
  const Fixed fixed = read_fixed(header);
  BlockHeader found;
  found.layout = layout_of_fixed(fixed);
  const auto head = header.first(found.layout.head_bytes);
  if (sum_of_head(head) != fixed.sum) return corrupt("its header's sum is wrong");
  auto rest = head.subspan(kBlockFixedBytes);
  found.block.extents.resize(fixed.extents);
  for (auto& extent : found.block.extents) {
    if (!take_extent(rest, extent)) return corrupt("an extent does not fit");
  }
  found.block = make_block(std::move(found.block.extents));
  // One encoding for each block: padding, unused fields, sizes and the key are as they must be.
  const auto layout = layout_of(found.block);
  if (!layout || layout->head_bytes != head.size() ||
      !std::equal(head.begin(), head.end(), encode_head(found.block).begin())) {
    return corrupt("its header is not what its extents give");
  }
  return found;
}

std::uint32_t cell_seed(const BlockKey& key, std::uint64_t cell) {
  // A sum is linear in its seed for bytes of one length, so that other seeds give other sums.
  std::uint64_t x = key.digest.low ^ std::rotl(key.digest.high, 32);
  x = (x ^ (x >> 32)) * 0x9E3779B97F4A7C15ull;
  return static_cast<std::uint32_t>(x >> 32) + static_cast<std::uint32_t>(cell) * 0x9E3779B1u;
}

std::uint32_t cell_sum(const BlockKey& key, std::uint64_t cell, std::span<const std::byte> bytes) {
  return cell_sum(crc32c(bytes, cell_seed(key, cell)));
}

}  // namespace headpond
