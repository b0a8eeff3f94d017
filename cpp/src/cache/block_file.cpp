#include "cache/block_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "cache/cell_reader.h"

namespace headpond {
namespace {

// Names where no block can be: nothing is there, or nothing of ours.
bool is_absent(int result) {
  return result == -ENOENT || result == -ENOTDIR || result == -ELOOP || result == -ENXIO;
}

Error error_of(const CacheFolder& folder, const BlockKey& key, int result, const char* doing) {
  return system_error(-result, std::string(doing) + " block " + key.hex() + " of the cache",
                      folder.path());
}

struct OpenFile {
  CacheFd fd;  // none: a miss
  std::uint64_t bytes = 0;
};

Result<OpenFile> open_file(const CacheFolder& folder, const BlockKey& key) {
  CacheFd fd(folder.ops(), folder.open_block(key));
  if (is_absent(fd.get())) return OpenFile{};
  if (!fd) return error_of(folder, key, fd.get(), "opening");
  struct stat what {};
  if (const int result = folder.ops().fstat(fd.get(), &what); result < 0)
    return error_of(folder, key, result, "looking at");
  if (!S_ISREG(what.st_mode)) return OpenFile{};  // nothing of ours
  return OpenFile{std::move(fd), static_cast<std::uint64_t>(what.st_size)};
}

std::vector<std::uint32_t> table_of(std::span<const std::byte> header, const BlockLayout& layout) {
  std::vector<std::uint32_t> sums(layout.cells);
  std::memcpy(sums.data(), header.data() + layout.head_bytes, sums.size() * sizeof(sums[0]));
  return sums;
}

}  // namespace

PublishedBlock::PublishedBlock(std::shared_ptr<const CacheFolder> folder, CacheFd fd, BlockKey key,
                               BlockLayout layout, std::vector<std::uint32_t> sums)
    : folder_(std::move(folder)),
      fd_(std::move(fd)),
      key_(key),
      layout_(layout),
      sums_(std::move(sums)) {}

Result<std::optional<PublishedBlock>> PublishedBlock::open(
    std::shared_ptr<const CacheFolder> folder, const Block& block) {
  const auto layout = layout_of(block);
  if (!layout) return layout.error();
  auto file = open_file(*folder, block.key);
  if (!file) return std::move(file).error();
  if (!file->fd) return std::nullopt;
  std::vector<std::byte> header(layout->header_bytes);
  const ssize_t size = pread_all(folder->ops(), file->fd.get(), header, 0);
  if (size < 0) return error_of(*folder, block.key, static_cast<int>(size), "reading");
  const std::vector<std::byte> head = encode_head(block);
  if (file->bytes != layout->file_bytes() || static_cast<std::size_t>(size) < header.size() ||
      !std::equal(head.begin(), head.end(), header.begin())) {
    folder->remove_damaged(block.key, file->fd.get());
    return std::nullopt;
  }
  auto sums = table_of(header, *layout);
  return PublishedBlock(std::move(folder), std::move(file->fd), block.key, *layout,
                        std::move(sums));
}

Result<std::optional<PublishedBlock>> PublishedBlock::open(
    std::shared_ptr<const CacheFolder> folder, const BlockKey& key, Block& found) {
  auto file = open_file(*folder, key);
  if (!file) return std::move(file).error();
  if (!file->fd) return std::nullopt;
  std::vector<std::byte> header(kBlockFixedBytes);
  const auto read = [&]() -> Result<bool> {
    const ssize_t size = pread_all(folder->ops(), file->fd.get(), header, 0);
    if (size < 0) return error_of(*folder, key, static_cast<int>(size), "reading");
    return static_cast<std::size_t>(size) == header.size();
  };
  const auto damaged = [&] {
    folder->remove_damaged(key, file->fd.get());
    return std::nullopt;
  };
  auto whole = read();
  if (!whole) return std::move(whole).error();
  const auto header_bytes = header_bytes_of(header);
  if (!*whole || !header_bytes || *header_bytes > file->bytes) return damaged();
  header.resize(*header_bytes);
  whole = read();
  if (!whole) return std::move(whole).error();
  auto stored = decode_header(header);
  if (!*whole || !stored || stored->block.key != key ||
      stored->layout.file_bytes() != file->bytes) {
    return damaged();
  }
  found = std::move(stored->block);
  auto sums = table_of(header, stored->layout);
  return PublishedBlock(std::move(folder), std::move(file->fd), key, stored->layout,
                        std::move(sums));
}

Result<std::size_t> PublishedBlock::read(std::span<const Piece> pieces, Wait wait) const {
  if (!within(pieces, layout_))
    return Error(ErrorCode::invalid_argument, "a read beyond the end of a block");
  // There RWF_NOWAIT is refused.
  if (folder_->in_memory()) wait = Wait::allowed;
  const CellFile file{folder_->ops(), fd_.get(), key_, layout_, std::span(sums_)};
  const CellsRead done = read_cells(file, pieces, wait);
  if (done.error < 0) return error_of(*folder_, key_, done.error, "reading");
  if (done.wrong) {
    folder_->remove_damaged(key_, fd_.get());
    return Error(ErrorCode::corrupt_data,
                 "block " + key_.hex() + " of the cache " + folder_->path() + " is damaged");
  }
  return done.filled;
}

Result<std::vector<std::uint64_t>> PublishedBlock::wrong_cells() const {
  std::vector<std::uint64_t> wrong;
  const CellFile file{folder_->ops(), fd_.get(), key_, layout_, std::span(sums_)};
  const int result = check_cells(file, 0, layout_.cells, [&](std::uint64_t cell, bool matches) {
    if (!matches) wrong.push_back(cell);
  });
  if (result < 0) return error_of(*folder_, key_, result, "reading");
  return wrong;
}

}  // namespace headpond
