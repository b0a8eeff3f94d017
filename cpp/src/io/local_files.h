#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "headpond/store.h"
#include "io/cold_map.h"
#include "io/counters.h"
#include "io/file_ops.h"
#include "io/handle_cache.h"
#include "io/local_root.h"

namespace headpond {

// A request of `Store::read` on its way through a backend.
struct LocalRead {
  std::shared_ptr<LocalRoot> root;
  ReadRequest request;
  bool failed_once = false;  // with EIO: the next time counts

  ByteRange range() const { return {request.offset, request.offset + request.out.size()}; }
  bool stopped() const {
    return root->closing.load(std::memory_order_relaxed) || request.stop.stop_requested();
  }
  Error cancelled() const;
  // Runs `done`, once; keeps the request for ever when close() has given up on it.
  void finish(Result<ReadOutcome> outcome, Counters& counters);
};

// Files up to this size that are read as a whole are opened, read and closed at
// once; larger ones, and files read by range, keep their handle.
constexpr std::uint64_t kWholeFileMax = 1u << 20;

// Is it [0, size) of an object whose size is known and small?
bool is_whole_file(const ObjectVersion& expected, std::uint64_t offset, std::size_t bytes);

// Opening and reading local files on the calling thread: what the warm path, the
// pread pool and the corner cases of the ring share. Safe to call from any thread.
class LocalFiles {
 public:
  LocalFiles(std::unique_ptr<FileOps> ops, std::size_t handles_max);

  // A regular file, opened by path, fresh. Null: `cached_only` and not in memory.
  // When handles are used up, cached ones are closed and it is tried again.
  Result<std::shared_ptr<FileHandle>> open(const LocalRoot& root, std::string_view name,
                                           bool cached_only);
  // The same for a descriptor that is open already.
  Result<std::shared_ptr<FileHandle>> adopt(const LocalRoot& root, std::string_view name,
                                            UniqueFd fd);

  // A cached handle of the expected version; null when there is none. A handle
  // looked at more than a second ago is compared with its file first: see LocalIo for
  // what that promises.
  std::shared_ptr<FileHandle> cached(const LocalRoot& root, std::string_view name,
                                     const ObjectVersion& expected);
  // `cached`, else `open` and keep. Errors: object_changed and those of open.
  Result<std::shared_ptr<FileHandle>> acquire(const LocalRoot& root, std::string_view name,
                                              const ObjectVersion& expected, bool cached_only);

  // How much of a range exists in a file of this version, and the error for a file
  // that gave `found` bytes from `offset` where this much was due.
  static std::uint64_t due(const ObjectVersion& version, std::uint64_t offset, std::uint64_t bytes);
  Error ended_early(const FileHandle& handle, std::uint64_t offset, std::uint64_t found);

  // A file that says 0 bytes, as those of /proc do, and has some: asked where a
  // whole file is read.
  bool holds_more(const FileHandle& handle);
  static Error more_error();

  // Reads until `out` is full or the file ends; short reads and EINTR go on, one EIO
  // is tried again if `again`. Returns bytes, or -errno (EAGAIN: RWF_NOWAIT, and not in memory).
  ssize_t fill(int fd, std::span<std::byte> out, std::uint64_t offset, int flags,
               bool again = true);

  // One whole request, waiting for the disk. Takes memory for it if it asks for that.
  Result<ReadOutcome> read(LocalRead& read);

  Result<ObjectInfo> stat(const LocalRoot& root, std::string_view name);

  FileOps& ops() { return *ops_; }
  Counters& counters() { return counters_; }
  HandleCache& handles() { return handles_; }
  ColdMap& cold() { return cold_; }

 private:
  int open_descriptor(const char* path, bool cached_only);
  Error no_handles(int error_number) const;

  const std::unique_ptr<FileOps> ops_;
  Counters counters_;
  HandleCache handles_;
  ColdMap cold_;
};

}  // namespace headpond
