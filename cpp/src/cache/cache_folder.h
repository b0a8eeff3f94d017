#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cache/cache_ops.h"
#include "headpond/block.h"
#include "headpond/result.h"

namespace headpond {

// A cache directory: its marker, its folders and the names in them (docs/cache-format.md).
//
// Nothing but what the cache made is ever deleted, and no symbolic link below the directory is
// followed. The folder knows nothing of space and order. Safe to call from any thread. In a forked
// child it may only be destroyed.
class CacheFolder {
 public:
  // Opens the directory and creates what is missing in it, the directory itself included (not the
  // ones above it). One that cannot be written can still be opened for reading when all is there.
  // Errors, each with the next step: invalid_argument (a symbolic link, "/", a home, not empty and
  // not a cache); access_denied (owned by another user, writable by others); corrupt_data (the
  // marker is not one); not_found (nothing above it); those of the system calls.
  static Result<std::shared_ptr<CacheFolder>> open(const std::string& path,
                                                   std::shared_ptr<CacheOps> ops);
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

  // The same for every path that leads here.
  struct Identity {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    auto operator<=>(const Identity&) const = default;
  };
  Identity identity() const { return identity_; }
  const std::string& path() const { return path_; }
  const std::string& node_id() const {
    return node_id_;
  }  // 32 hex digits, for the directory's life
  CacheOps& ops() const { return *ops_; }
  // On a file system that keeps its files in memory (tmpfs): reads never wait for a disk.
  bool in_memory() const { return in_memory_; }

  // Descriptors of DIR/v1 and of the folders in it, for inotify and for files of other parts.
  int v1() const { return v1_.get(); }
  int fill() const { return fill_.get(); }
  int use() const { return use_.get(); }

  // A published block, for reading: a descriptor or -errno.
  int open_block(const BlockKey& key) const;
  // A fill file, for writing; `flags` as of open(2), O_CREAT to make one. A descriptor or -errno.
  int open_fill(const BlockKey& key, int flags) const;
  // Gives the fill file its published name: 0, or -errno; -EEXIST: something has that name, and
  // the fill file is still there.
  int publish(const BlockKey& key) const;
  // Whether fill/<hex> still names the file that is open as `fd`.
  bool is_fill(const BlockKey& key, int fd) const;
  // 0 or -errno.
  int remove_fill(const BlockKey& key) const;

  // Removes a published block. What its file took (in whole 4 KiB, as everywhere); 0: there is
  // none.
  Result<std::uint64_t> remove_block(const BlockKey& key) const;
  // Removes a published file that was found wrong, if its name still stands for the file open as
  // `fd`, counts it and tells on_damaged. Failing to remove it is no error: it stays a miss.
  void remove_damaged(const BlockKey& key, int fd) const;
  // Called with what each damaged file removed took, for the accounts. Set before use by others.
  void on_damaged(std::function<void(const BlockKey&, std::uint64_t bytes)> removed);
  std::uint64_t damaged_blocks() const { return damaged_blocks_; }

  // Calls `each` for every published block with what its file takes, in the order of the first
  // two hex digits, from `first_folder` (0..255) on; false from `each` stops. Blocks that come or
  // go meanwhile may be missed. Returns the folder in which it stopped, 256 at the end.
  Result<int> scan(int first_folder,
                   const std::function<bool(const BlockKey&, std::uint64_t bytes)>& each) const;

 private:
  explicit CacheFolder(std::shared_ptr<CacheOps> ops) : ops_(std::move(ops)) {}
  Result<void> open_root(const std::string& path);
  Result<void> check_root();
  Result<void> mark_root();
  Result<bool> read_marker();
  Result<void> create_marker();
  Result<void> check_empty() const;
  Result<void> write_marker(const char* name, const std::string& node_id) const;
  void remove_unfinished_markers() const;
  Result<CacheFd> open_folder(int parent, const char* name) const;
  CacheFd leaf_folder(const BlockKey& key, bool create) const;
  Error error_of(int result, std::string_view doing) const;
  Error refused(ErrorCode code, std::string_view why) const;

  std::shared_ptr<CacheOps> ops_;
  std::string path_;
  std::string node_id_;
  Identity identity_;
  bool in_memory_ = false;
  CacheFd root_, v1_, blocks_, fill_, use_;
  std::function<void(const BlockKey&, std::uint64_t)> damaged_;
  mutable std::atomic<std::uint64_t> damaged_blocks_ = 0;
};

// 32 hex digits, lower case, as names of blocks and fill files are.
std::optional<BlockKey> parse_block_name(std::string_view name);

}  // namespace headpond
