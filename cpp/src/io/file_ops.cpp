#include "io/file_ops.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace headpond {
namespace {
template <class T>
T or_errno(T result) {
  return result < 0 ? static_cast<T>(-errno) : result;
}
}  // namespace

int FileOps::open(const char* path, int flags, bool cached_only) {
  if (!cached_only) return or_errno(::open(path, flags));
  struct open_how how = {};
  how.flags = static_cast<std::uint64_t>(flags);
  how.resolve = RESOLVE_CACHED;
  const auto fd = static_cast<int>(syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how)));
  if (fd >= 0) return fd;
  // Before 5.12, and under filters that do not know the call: an open may then
  // wait for the disk, as everywhere else.
  if (errno == ENOSYS || errno == EINVAL || errno == E2BIG || errno == EPERM)
    return or_errno(::open(path, flags));
  return -errno;
}

int FileOps::fstat(int fd, struct stat* out) { return or_errno(::fstat(fd, out)); }

int FileOps::stat(const char* path, struct stat* out) { return or_errno(::stat(path, out)); }

ssize_t FileOps::pread(int fd, std::byte* out, std::size_t bytes, std::uint64_t offset, int flags) {
  if (flags == 0) return or_errno(::pread(fd, out, bytes, static_cast<off_t>(offset)));
  const struct iovec piece = {out, bytes};
  return or_errno(::preadv2(fd, &piece, 1, static_cast<off_t>(offset), flags));
}

std::int64_t FileOps::now_ns() {
  struct timespec now = {};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace headpond
