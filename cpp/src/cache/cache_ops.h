#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

namespace headpond {

// The system calls of the cache. The base class makes them; tests derive from it and alter single
// answers, stop a process at each call, or forget what was not synced. Results are those of the
// call, or -errno; EINTR is made again. Safe to call from any thread.
class CacheOps {
 public:
  virtual ~CacheOps() = default;

  // open(2) of a path as the user wrote it. Only the last part may not be a symbolic link.
  virtual int open_root(const char* path);
  // openat(2) of a relative path below `dir` that follows no symbolic link in any part (ELOOP)
  // and does not leave `dir`.
  virtual int openat(int dir, const char* path, int flags, mode_t mode = 0);
  virtual int close(int fd);
  virtual int mkdirat(int dir, const char* name, mode_t mode);
  // F_SETLK on [start, start + bytes), 0 bytes: to the end of all files. `type`: F_WRLCK, F_RDLCK,
  // F_UNLCK. Held by another process: -EAGAIN.
  virtual int set_lock(int fd, short type, std::uint64_t start, std::uint64_t bytes);

  virtual int fstat(int fd, struct stat* out);
  virtual int fstatat(int dir, const char* name, struct stat* out);  // of a link: the link itself
  // `flags` as in preadv2(2): RWF_NOWAIT.
  virtual ssize_t preadv(int fd, const struct iovec* parts, int count, std::uint64_t offset,
                         int flags);
  virtual ssize_t pwrite(int fd, const std::byte* bytes, std::size_t size, std::uint64_t offset);
  virtual int ftruncate(int fd, std::uint64_t size);
  virtual int fsync(int fd);

  virtual int renameat2(int from_dir, const char* from, int to_dir, const char* to,
                        unsigned int flags);
  virtual int linkat(int from_dir, const char* from, int to_dir, const char* to);
  virtual int unlinkat(int dir, const char* name);  // no folders
  // Names of a folder in no order, without "." and ".."; `each` returns false to stop.
  virtual int list(int dir, const std::function<bool(const char* name)>& each);
  virtual int fstatvfs(int fd, struct statvfs* out);

  virtual std::int64_t now_ns();  // CLOCK_MONOTONIC

 private:
  std::atomic<bool> no_openat2_ = false;
};

// openat() without openat2(2): part by part. What CacheOps does where the call is missing.
int openat_by_parts(int dir, const char* path, int flags, mode_t mode);

// Owns a descriptor that was opened through CacheOps, which must outlive it.
class CacheFd {
 public:
  CacheFd() = default;
  CacheFd(CacheOps& ops, int fd) : ops_(&ops), fd_(fd) {}
  CacheFd(CacheFd&& other) noexcept : ops_(other.ops_), fd_(std::exchange(other.fd_, -1)) {}
  CacheFd& operator=(CacheFd&& other) noexcept {
    if (this != &other) {
      reset();
      ops_ = other.ops_;
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~CacheFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0) ops_->close(std::exchange(fd_, -1));
  }

 private:
  CacheOps* ops_ = nullptr;
  int fd_ = -1;  // or -errno of the open
};

// All of `bytes`, however many calls that takes: 0 or -errno.
int pwrite_all(CacheOps& ops, int fd, std::span<const std::byte> bytes, std::uint64_t offset);
// As many bytes as there are, up to `out.size()`: that count or -errno.
ssize_t pread_all(CacheOps& ops, int fd, std::span<std::byte> out, std::uint64_t offset);

// Gives a file its final name where nothing has that name yet, else -EEXIST. By
// renameat2(RENAME_NOREPLACE); where the file system lacks it by link and unlink, so that a kill
// can leave both names; where it lacks links too, by a rename that replaces.
int rename_new(CacheOps& ops, int from_dir, const char* from, int to_dir, const char* to);

}  // namespace headpond
