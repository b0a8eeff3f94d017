#include "cache/fill_file.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "cache/cell_reader.h"

namespace headpond {
namespace {

Error fill_error(const CacheFolder& folder, const BlockKey& key, int result, const char* doing) {
  return system_error(-result, std::string(doing) + " block " + key.hex() + " of the cache",
                      folder.path());
}

}  // namespace

FillClaim::~FillClaim() {
  if (claims_ == nullptr) return;
  const std::lock_guard lock(claims_->mutex_);
  claims_->held_.erase(key_);
}

std::optional<FillClaim> FillClaims::claim(const BlockKey& key) {
  const std::lock_guard lock(mutex_);
  if (!held_.insert(key).second) return std::nullopt;
  return FillClaim(*this, key);
}

FillFile::FillFile(std::shared_ptr<const CacheFolder> folder, FillClaim claim, CacheFd fd,
                   BlockLayout layout)
    : folder_(std::move(folder)),
      claim_(std::move(claim)),
      fd_(std::move(fd)),
      layout_(layout),
      sums_(layout.cells) {}

FillFile::~FillFile() = default;

Error FillFile::error_of(int result, const char* doing) const {
  return fill_error(*folder_, key(), result, doing);
}

Result<FillBegin> FillFile::begin(std::shared_ptr<const CacheFolder> folder, const Block& block,
                                  FillClaim claim) {
  const auto layout = layout_of(block);
  if (!layout) return layout.error();
  CacheOps& ops = folder->ops();
  // Each turn somebody else published or gave up a block between two of our calls.
  constexpr int kTurns = 100;
  for (int turn = 0; turn < kTurns; ++turn) {
    auto published = PublishedBlock::open(folder, block);
    if (!published) return std::move(published).error();
    if (*published) return FillBegin(**std::move(published));
    CacheFd fd(ops, folder->open_fill(block.key, O_CREAT));
    if (!fd) return fill_error(*folder, block.key, fd.get(), "making");
    struct stat file {};
    if (const int result = ops.fstat(fd.get(), &file); result < 0)
      return fill_error(*folder, block.key, result, "making");
    if (!S_ISREG(file.st_mode)) {
      return Error(ErrorCode::not_regular,
                   "fill/" + block.key.hex() + " of the cache " + folder->path() + " is no file");
    }
    const int locked = ops.set_lock(fd.get(), F_WRLCK, 0, 0);
    if (locked == -EAGAIN) {
      return FillBegin(
          FillBusy{{file.st_ino, static_cast<std::uint64_t>(file.st_blocks),
                    file.st_mtim.tv_sec * std::int64_t{1'000'000'000} + file.st_mtim.tv_nsec}});
    }
    if (locked < 0) return fill_error(*folder, block.key, locked, "locking");
    // The holder before us may have published the file that we opened, or removed it.
    if (!folder->is_fill(block.key, fd.get())) continue;
    return begin_locked(std::move(folder), block, std::move(claim), std::move(fd), *layout);
  }
  return Error(ErrorCode::io_failed,
               "block " + block.key.hex() + " of the cache " + folder->path() + " comes and goes");
}

Result<FillBegin> FillFile::begin_locked(std::shared_ptr<const CacheFolder> folder,
                                         const Block& block, FillClaim claim, CacheFd fd,
                                         const BlockLayout& layout) {
  // Who held the lock before may have published between our look and our making a new file.
  auto published = PublishedBlock::open(folder, block);
  if (!published) return std::move(published).error();
  if (*published) {
    folder->remove_fill(block.key);
    return FillBegin(**std::move(published));
  }
  std::unique_ptr<FillFile> file(
      new FillFile(std::move(folder), std::move(claim), std::move(fd), layout));
  const std::vector<std::byte> head = encode_head(block);
  if (!file->resume(head)) {
    if (auto started = file->start(head); !started) return std::move(started).error();
  }
  return FillBegin(std::move(file));
}

// Goes on where a dead process stopped; false when nothing of use is there.
bool FillFile::resume(std::span<const std::byte> head) {
  CacheOps& ops = folder_->ops();
  struct stat file {};
  if (ops.fstat(fd_.get(), &file) < 0) return false;
  if (static_cast<std::uint64_t>(file.st_size) != layout_.file_bytes()) return false;
  std::vector<std::byte> header(layout_.header_bytes);
  const ssize_t size = pread_all(ops, fd_.get(), header, 0);
  if (size != static_cast<ssize_t>(header.size())) return false;
  if (!std::equal(head.begin(), head.end(), header.begin())) return false;
  std::vector<std::uint32_t> sums(layout_.cells);
  std::memcpy(sums.data(), header.data() + layout_.head_bytes, sums.size() * sizeof(sums[0]));
  take_whole_cells(sums);
  return true;
}

// Not only a kill stops a process: after a power cut a sum may be there and its cell not.
void FillFile::take_whole_cells(std::span<const std::uint32_t> sums) {
  const CellFile file{folder_->ops(), fd_.get(), key(), layout_, sums};
  std::uint64_t whole = 0;
  for (std::uint64_t cell = 0; cell < layout_.cells;) {
    std::uint64_t stop = cell;
    while (stop < layout_.cells && sums[stop] != 0) ++stop;
    // Cells that cannot be read are fetched again.
    check_cells(file, cell, stop, [&](std::uint64_t at, bool matches) {
      if (!matches) return;
      sums_[at].store(sums[at], std::memory_order_relaxed);
      ++whole;
    });
    cell = stop + 1;
  }
  whole_cells_.store(whole, std::memory_order_release);
}

Result<void> FillFile::start(std::span<const std::byte> head) {
  CacheOps& ops = folder_->ops();
  int result = ops.ftruncate(fd_.get(), 0);
  if (result == 0) result = ops.ftruncate(fd_.get(), layout_.file_bytes());
  if (result == 0) result = pwrite_all(ops, fd_.get(), head, 0);
  if (result < 0) return error_of(result, "making");
  return {};
}

std::uint64_t FillFile::whole_bytes() const {
  const std::uint64_t cells = whole_cells_.load(std::memory_order_acquire);
  const std::uint64_t last = layout_.cells - 1;
  const bool short_one = cells > 0 && sums_[last].load(std::memory_order_relaxed) != 0;
  return cells * kCellBytes - (short_one ? kCellBytes - layout_.cell_bytes(last) : 0);
}

bool FillFile::has(ByteRange payload) const {
  const std::uint64_t stop = std::min<std::uint64_t>(cells_of(payload.stop), layout_.cells);
  for (std::uint64_t cell = payload.start / kCellBytes; cell < stop; ++cell) {
    if (sums_[cell].load(std::memory_order_acquire) == 0) return false;
  }
  return payload.stop <= layout_.payload_bytes;
}

std::vector<ByteRange> FillFile::missing() const {
  std::vector<ByteRange> ranges;
  for (std::uint64_t cell = 0; cell < layout_.cells; ++cell) {
    if (sums_[cell].load(std::memory_order_acquire) != 0) continue;
    const std::uint64_t start = cell * kCellBytes;
    const std::uint64_t stop = start + layout_.cell_bytes(cell);
    if (!ranges.empty() && ranges.back().stop == start) {
      ranges.back().stop = stop;
    } else {
      ranges.push_back({start, stop});
    }
  }
  return ranges;
}

Result<void> FillFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  const std::uint64_t payload = layout_.payload_bytes;
  if (offset % kCellBytes != 0 || offset > payload || bytes.size() > payload - offset ||
      (bytes.size() % kCellBytes != 0 && offset + bytes.size() != payload)) {
    return Error(ErrorCode::invalid_argument, "a block is written in whole cells");
  }
  CacheOps& ops = folder_->ops();
  int result = pwrite_all(ops, fd_.get(), bytes, layout_.header_bytes + offset);
  if (result < 0) return error_of(result, "writing");
  // Only now: a sum that is there says that its cell is.
  std::array<std::uint32_t, 256> sums;
  while (!bytes.empty()) {
    const std::uint64_t first = offset / kCellBytes;
    const std::uint64_t cells = std::min<std::uint64_t>(cells_of(bytes.size()), sums.size());
    for (std::uint64_t i = 0; i < cells; ++i) {
      const std::size_t size = layout_.cell_bytes(first + i);
      sums[i] = cell_sum(key(), first + i, bytes.subspan(i * kCellBytes, size));
    }
    result = pwrite_all(ops, fd_.get(), std::as_bytes(std::span(sums).first(cells)),
                        layout_.head_bytes + first * sizeof(sums[0]));
    if (result < 0) return error_of(result, "writing");
    std::uint64_t fresh = 0;
    for (std::uint64_t i = 0; i < cells; ++i)
      fresh += sums_[first + i].exchange(sums[i], std::memory_order_release) == 0 ? 1 : 0;
    whole_cells_.fetch_add(fresh, std::memory_order_acq_rel);
    const std::size_t done = std::min<std::size_t>(cells * kCellBytes, bytes.size());
    bytes = bytes.subspan(done);
    offset += done;
  }
  return {};
}

Result<void> FillFile::read(std::span<const Piece> pieces) const {
  const bool there =
      within(pieces, layout_) && std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
        return has({piece.offset, piece.offset + piece.out.size()});
      });
  if (!there) return Error(ErrorCode::invalid_argument, "a read of what is not yet in the cache");
  const CellFile file{folder_->ops(), fd_.get(), key(), layout_, std::span(sums_)};
  const CellsRead done = read_cells(file, pieces, Wait::allowed);
  if (done.error < 0) return error_of(done.error, "reading");
  if (done.wrong) {
    return Error(ErrorCode::corrupt_data, "block " + key().hex() + " of the cache " +
                                              folder_->path() + " is damaged before it is whole");
  }
  return {};
}

Result<bool> FillFile::publish(const std::function<void()>& before_rename) {
  if (!complete())
    return Error(ErrorCode::internal, "a block was to be published before it is whole");
  if (before_rename) before_rename();
  const int result = folder_->publish(key());
  if (result == 0) return true;
  if (result != -EEXIST) return error_of(result, "publishing");
  abandon();
  return false;
}

void FillFile::abandon() { folder_->remove_fill(key()); }

Result<std::uint64_t> remove_dead_fills(const CacheFolder& folder, FillClaims& claims) {
  CacheOps& ops = folder.ops();
  std::vector<BlockKey> keys;
  const int listed = ops.list(folder.fill(), [&](const char* name) {
    if (const auto key = parse_block_name(name)) keys.push_back(*key);
    return true;
  });
  if (listed < 0) return system_error(-listed, "listing the fill files of", folder.path());
  std::uint64_t removed = 0;
  for (const BlockKey& key : keys) {
    const auto claim = claims.claim(key);
    if (!claim) continue;
    const CacheFd fd(ops, folder.open_fill(key, 0));
    if (fd.get() == -ENOENT || fd.get() == -ELOOP || fd.get() == -EISDIR || fd.get() == -ENXIO)
      continue;
    if (!fd) return fill_error(folder, key, fd.get(), "removing the dead");
    struct stat file {};
    if (ops.fstat(fd.get(), &file) < 0 || !S_ISREG(file.st_mode)) continue;
    if (ops.set_lock(fd.get(), F_WRLCK, 0, 0) < 0 || !folder.is_fill(key, fd.get())) continue;
    if (const int result = folder.remove_fill(key); result < 0)
      return fill_error(folder, key, result, "removing the dead");
    removed += whole_cells(static_cast<std::uint64_t>(file.st_size));
  }
  return removed;
}

}  // namespace headpond
