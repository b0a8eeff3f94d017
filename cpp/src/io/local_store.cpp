#include "io/local_store.h"

#include <linux/magic.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/cpus.h"
#include "io/listing.h"

namespace headpond {
namespace {

// Listing waits for the disk more than for the CPU.
unsigned listing_threads() { return std::clamp(2 * usable_cpus(), 4u, 16u); }

ByteRange range_of(const Piece& piece) { return {piece.offset, piece.offset + piece.out.size()}; }

// Memory file systems refuse RWF_NOWAIT and never wait for a disk.
bool is_memory_file_system(int fd) {
  struct statfs status = {};
  return fstatfs(fd, &status) == 0 &&
         (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC);
}

}  // namespace

LocalStore::~LocalStore() { close(); }

std::optional<Error> LocalStore::refuse(std::string_view object) const {
  if (shared_->forked()) {
    return root_->at(Error(ErrorCode::forked, "the store belongs to the parent process"), object,
                     {});
  }
  if (root_->closing.load(std::memory_order_relaxed)) {
    return root_->at(Error(ErrorCode::closed, "the store is closed"), object, {});
  }
  if (object.find('\0') != std::string_view::npos) {
    return root_->at(Error(ErrorCode::invalid_argument, "a name may not hold NUL bytes"), object,
                     {});
  }
  return std::nullopt;
}

void LocalStore::read(std::span<ReadRequest> requests) {
  std::vector<LocalRead> reads;
  reads.reserve(requests.size());
  for (auto& taken : requests) {
    ReadRequest request = std::move(taken);
    auto refused = refuse(request.object);
    if (!refused && !root_->in_flight.enter(1)) {
      refused = root_->at(Error(ErrorCode::closed, "the store is closed"), request.object, {});
    }
    if (refused) {
      request.done(
          std::move(*refused).at_range({request.offset, request.offset + request.out.size()}));
      continue;
    }
    reads.push_back({root_, std::move(request)});
  }
  if (reads.empty()) return;
  if (const auto backend = shared_->backend(); backend != nullptr)
    return backend->submit(std::move(reads));
  for (auto& read : reads) read.finish(read.cancelled(), shared_->files().counters());
}

void LocalStore::stat(std::string object, std::function<void(Result<ObjectInfo>)> done) {
  if (auto refused = refuse(object)) return done(*std::move(refused));
  done(shared_->files().stat(*root_, object));
}

void LocalStore::list(ListRequest request) {
  if (auto refused = refuse(request.prefix)) return request.page(*std::move(refused));
  list_tree(shared_->files(), *root_, request, listing_threads());
}

Result<std::size_t> LocalStore::read_now(std::string_view object, const ObjectVersion& expected,
                                         std::span<const Piece> pieces, Wait wait) {
  if (auto refused = refuse(object)) return *std::move(refused);
  if (pieces.size() == 1 && is_whole_file(expected, pieces[0].offset, pieces[0].out.size())) {
    return read_file_now(object, expected, pieces[0], wait);
  }
  return read_pieces_now(object, expected, pieces, wait);
}

Result<std::size_t> LocalStore::read_file_now(std::string_view object,
                                              const ObjectVersion& expected, const Piece& piece,
                                              Wait wait) {
  LocalFiles& files = shared_->files();
  const auto spot = ColdMap::folder(root_->id, object);
  if (wait == Wait::never) {
    if (!files.cold().should_probe(spot)) return 0;
    files.counters().add(Count::probes);
  }
  auto opened = files.open(*root_, object, wait == Wait::never);
  if (!opened) return std::move(opened).error().at_range(range_of(piece));
  if (*opened == nullptr) {
    files.cold().was_cold(spot);
    return 0;
  }
  const FileHandle& handle = **opened;
  if (!expected.accepts(handle.version)) {
    return root_->at(changed_error(expected, handle.version), object, range_of(piece));
  }
  auto filled = fill_now(object, handle, piece, spot, wait);
  if (!filled) return std::move(filled).error();
  if (files.holds_more(handle)) return root_->at(LocalFiles::more_error(), object, range_of(piece));
  return *filled ? 1 : 0;
}

Result<std::size_t> LocalStore::read_pieces_now(std::string_view object,
                                                const ObjectVersion& expected,
                                                std::span<const Piece> pieces, Wait wait) {
  LocalFiles& files = shared_->files();
  auto acquired = files.acquire(*root_, object, expected, wait == Wait::never);
  if (!acquired) return std::move(acquired).error();
  if (*acquired == nullptr) return 0;
  const FileHandle& handle = **acquired;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    const std::uint64_t due = LocalFiles::due(handle.version, piece.offset, piece.out.size());
    if (due < piece.out.size()) return past_end(object, expected, handle, piece, due);
    const auto spot = ColdMap::region(handle.identity(), piece.offset);
    if (wait == Wait::never) {
      if (!files.cold().should_probe(spot)) return i;
      files.counters().add(Count::probes);
    }
    auto filled = fill_now(object, handle, piece, spot, wait);
    if (!filled) {
      files.handles().erase(root_->id, object, *acquired);
      return std::move(filled).error();
    }
    if (!*filled) return i;
  }
  return pieces.size();
}

Result<bool> LocalStore::fill_now(std::string_view object, const FileHandle& handle,
                                  const Piece& piece, ColdMap::Spot spot, Wait wait) {
  LocalFiles& files = shared_->files();
  const int fd = handle.fd.get();
  ssize_t got = files.fill(fd, piece.out, piece.offset, wait == Wait::never ? RWF_NOWAIT : 0);
  if (got == -EOPNOTSUPP && is_memory_file_system(fd))
    got = files.fill(fd, piece.out, piece.offset, 0);
  if (got == -EAGAIN || got == -EOPNOTSUPP) {
    files.cold().was_cold(spot);
    return false;
  }
  if (got < 0) return root_->failed(static_cast<int>(-got), "read", object, range_of(piece));
  const auto bytes = static_cast<std::uint64_t>(got);
  if (bytes < piece.out.size()) return past_end(object, handle.version, handle, piece, bytes);
  if (wait == Wait::never) files.cold().was_warm(spot);
  files.counters().add(wait == Wait::never ? Count::warm_reads : Count::cold_reads);
  files.counters().add(wait == Wait::never ? Count::warm_bytes : Count::cold_bytes, bytes);
  return true;
}

Error LocalStore::past_end(std::string_view object, const ObjectVersion& expected,
                           const FileHandle& handle, const Piece& piece, std::uint64_t found) {
  const bool ends_there = piece.offset + found >= handle.version.size && handle.version.size != 0;
  if (!ends_there)
    return root_->at(shared_->files().ended_early(handle, piece.offset, found), object,
                     range_of(piece));
  const bool size_known = expected.size != ObjectVersion::kAnySize;
  return root_->at(
      Error(size_known ? ErrorCode::object_changed : ErrorCode::corrupt_data,
            "the range reaches past the object's end at " + std::to_string(handle.version.size)),
      object, range_of(piece));
}

void LocalStore::close() {
  if (shared_->forked()) return;  // the parent's reads are the parent's
  shared_->close_root(*root_);
}

}  // namespace headpond
