#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/digest.h"
#include "cache/block_format.h"

using namespace headpond;

namespace {

// What is accepted is exactly what would be written for the block that was found.
void check_decoded(const std::vector<std::byte>& header) {
  const auto found = decode_header(header);
  if (!found) return;
  const auto layout = layout_of(found->block);
  if (!layout || layout->file_bytes() != found->layout.file_bytes()) std::abort();
  const auto head = encode_head(found->block);
  if (head.size() != layout->head_bytes || !std::equal(head.begin(), head.end(), header.begin()))
    std::abort();
  if (make_block(found->block.extents).key != found->block.key) std::abort();
}

// Takes numbers and texts off the front of the input.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    const std::size_t take = std::min(bytes, size_);
    std::memcpy(&value, data_, take);
    skip(take);
    return value;
  }
  std::string text() {
    const std::size_t take = std::min<std::size_t>(number(1), size_);
    std::string text(reinterpret_cast<const char*>(data_), take);
    skip(take);
    return text;
  }

 private:
  void skip(std::size_t bytes) {
    data_ += bytes;
    size_ -= bytes;
  }
  const std::uint8_t* data_;
  std::size_t size_;
};

// Any block that has a layout comes back from its header as it was.
void check_encoded(Input input) {
  std::vector<BlockExtent> extents;
  while (!input.empty() && extents.size() < 100) {
    BlockExtent extent;
    extent.uri = input.text();
    extent.version.etag = input.text();
    extent.version.size = input.number(8);
    extent.version.mtime_ns = static_cast<std::int64_t>(input.number(8));
    extent.version.inode = input.number(8);
    extent.version.weak = input.number(1) % 2 == 1;
    extent.range.start = input.number(8);
    extent.range.stop = extent.range.start + input.number(3);
    extents.push_back(std::move(extent));
  }
  const Block block = make_block(std::move(extents));
  const auto layout = layout_of(block);
  if (!layout) return;
  auto header = encode_head(block);
  header.resize(layout->header_bytes);
  const auto found = decode_header(header);
  if (!found || found->block.key != block.key || found->block.extents != block.extents)
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> header(bytes, bytes + size);
  check_decoded(header);
  if (const auto needed = header_bytes_of(header); needed && *needed <= header.size()) {
    // With a sum that is right, so that what stands behind it is looked at.
    std::uint32_t extents_bytes = 0;
    std::memcpy(&extents_bytes, header.data() + 24, sizeof(extents_bytes));
    const auto all = std::span<const std::byte>(header);
    const std::uint32_t sum =
        crc32c(all.subspan(kBlockFixedBytes, extents_bytes), crc32c(all.first(60)));
    std::memcpy(header.data() + 60, &sum, sizeof(sum));
    check_decoded(header);
  }
  if (size > 0) check_encoded(Input(data, size));
  return 0;
}
