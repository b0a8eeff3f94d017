#include "cache/cache_ops.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace headpond {
namespace {

template <class Call>
auto or_errno(Call call) {
  for (;;) {
    const auto result = call();
    if (result >= 0) return result;
    if (errno != EINTR) return static_cast<decltype(result)>(-errno);
  }
}

}  // namespace

int CacheOps::open_root(const char* path) {
  return or_errno([&] { return ::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); });
}

int CacheOps::openat(int dir, const char* path, int flags, mode_t mode) {
  flags |= O_CLOEXEC | O_NOFOLLOW;
  if (!no_openat2_.load(std::memory_order_relaxed)) {
    struct open_how how = {};
    how.flags = static_cast<std::uint64_t>(flags);
    how.mode = (flags & O_CREAT) != 0 ? mode : 0;
    how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH;
    const int fd = or_errno(
        [&] { return static_cast<int>(::syscall(SYS_openat2, dir, path, &how, sizeof(how))); });
    // Before Linux 5.6; and EPERM under filters that do not know the call.
    if (fd == -ENOSYS) no_openat2_.store(true, std::memory_order_relaxed);
    if (fd != -ENOSYS && fd != -EPERM) return fd;
  }
  return openat_by_parts(dir, path, flags, mode);
}

int openat_by_parts(int dir, const char* path, int flags, mode_t mode) {
  UniqueFd above;
  std::string_view rest(path);
  for (;;) {
    const auto slash = rest.find('/');
    const std::string part(rest.substr(0, slash));
    if (part.empty() || part == "..") return -EINVAL;
    const bool last = slash == std::string_view::npos;
    const int how = last ? flags : O_PATH | O_DIRECTORY;
    const int from = above ? above.get() : dir;
    const int fd =
        or_errno([&] { return ::openat(from, part.c_str(), how | O_NOFOLLOW | O_CLOEXEC, mode); });
    // O_PATH | O_DIRECTORY answers ENOTDIR for a link; openat2 says what it is.
    struct stat what {};
    if (fd == -ENOTDIR && !last && ::fstatat(from, part.c_str(), &what, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(what.st_mode)) {
      return -ELOOP;
    }
    if (fd < 0 || last) return fd;
    above = UniqueFd(fd);
    rest.remove_prefix(slash + 1);
  }
}

int CacheOps::close(int fd) { return ::close(fd) < 0 ? -errno : 0; }

int CacheOps::mkdirat(int dir, const char* name, mode_t mode) {
  return or_errno([&] { return ::mkdirat(dir, name, mode); });
}

int CacheOps::set_lock(int fd, short type, std::uint64_t start, std::uint64_t bytes) {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(start);
  range.l_len = static_cast<off_t>(bytes);
  const int result = or_errno([&] { return ::fcntl(fd, F_SETLK, &range); });
  return result == -EACCES ? -EAGAIN : result;  // POSIX allows either
}

int CacheOps::fstat(int fd, struct stat* out) {
  return or_errno([&] { return ::fstat(fd, out); });
}

int CacheOps::fstatat(int dir, const char* name, struct stat* out) {
  return or_errno([&] { return ::fstatat(dir, name, out, AT_SYMLINK_NOFOLLOW); });
}

ssize_t CacheOps::preadv(int fd, const struct iovec* parts, int count, std::uint64_t offset,
                         int flags) {
  return or_errno([&] {
    return flags == 0 ? ::preadv(fd, parts, count, static_cast<off_t>(offset))
                      : ::preadv2(fd, parts, count, static_cast<off_t>(offset), flags);
  });
}

ssize_t CacheOps::pwrite(int fd, const std::byte* bytes, std::size_t size, std::uint64_t offset) {
  return or_errno([&] { return ::pwrite(fd, bytes, size, static_cast<off_t>(offset)); });
}

int CacheOps::ftruncate(int fd, std::uint64_t size) {
  return or_errno([&] { return ::ftruncate(fd, static_cast<off_t>(size)); });
}

int CacheOps::fsync(int fd) {
  return or_errno([&] { return ::fsync(fd); });
}

int CacheOps::renameat2(int from_dir, const char* from, int to_dir, const char* to,
                        unsigned int flags) {
  return or_errno([&] {
    return static_cast<int>(::syscall(SYS_renameat2, from_dir, from, to_dir, to, flags));
  });
}

int CacheOps::linkat(int from_dir, const char* from, int to_dir, const char* to) {
  return or_errno([&] { return ::linkat(from_dir, from, to_dir, to, 0); });
}

int CacheOps::unlinkat(int dir, const char* name) {
  return or_errno([&] { return ::unlinkat(dir, name, 0); });
}

int CacheOps::list(int dir, const std::function<bool(const char* name)>& each) {
  // A descriptor of its own: the position of a shared one would be shared.
  UniqueFd fd(::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return -errno;
  DIR* const stream = ::fdopendir(fd.get());
  if (stream == nullptr) return -errno;
  fd.release();
  int result = 0;
  for (;;) {
    errno = 0;
    const struct dirent* const entry = ::readdir(stream);
    if (entry == nullptr) {
      result = -errno;
      break;
    }
    const std::string_view name(entry->d_name);
    if (name != "." && name != ".." && !each(entry->d_name)) break;
  }
  ::closedir(stream);
  return result;
}

int CacheOps::fstatvfs(int fd, struct statvfs* out) {
  return or_errno([&] { return ::fstatvfs(fd, out); });
}

std::int64_t CacheOps::now_ns() {
  struct timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

int pwrite_all(CacheOps& ops, int fd, std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = ops.pwrite(fd, bytes.data(), bytes.size(), offset);
    if (written < 0) return static_cast<int>(written);
    if (written == 0) return -EIO;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return 0;
}

ssize_t pread_all(CacheOps& ops, int fd, std::span<std::byte> out, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < out.size()) {
    const struct iovec part = {out.data() + done, out.size() - done};
    const ssize_t read = ops.preadv(fd, &part, 1, offset + done, 0);
    if (read < 0) return read;
    if (read == 0) break;
    done += static_cast<std::size_t>(read);
  }
  return static_cast<ssize_t>(done);
}

int rename_new(CacheOps& ops, int from_dir, const char* from, int to_dir, const char* to) {
  const int renamed = ops.renameat2(from_dir, from, to_dir, to, RENAME_NOREPLACE);
  if (renamed != -EINVAL && renamed != -ENOSYS) return renamed;
  const int linked = ops.linkat(from_dir, from, to_dir, to);
  if (linked == 0) {
    ops.unlinkat(from_dir, from);  // failing it leaves a second name, and the new one is there
    return 0;
  }
  if (linked != -EPERM && linked != -EOPNOTSUPP && linked != -ENOSYS) return linked;
  return ops.renameat2(from_dir, from, to_dir, to, 0);
}

}  // namespace headpond
