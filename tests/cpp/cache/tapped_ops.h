#pragma once

#include <string_view>

#include "cache/cache_ops.h"

namespace headpond {

// The real calls with a tap before each one.
class TappedCacheOps : public CacheOps {
 public:
  int open_root(const char* path) override {
    return opened("open_root", [&] { return CacheOps::open_root(path); });
  }
  int openat(int dir, const char* path, int flags, mode_t mode) override {
    return opened("openat", [&] { return CacheOps::openat(dir, path, flags, mode); });
  }
  int close(int fd) override {
    tap("close");  // a descriptor is gone in any case
    closed(fd);
    return CacheOps::close(fd);
  }
  int mkdirat(int dir, const char* name, mode_t mode) override {
    return or_tap("mkdirat", [&] { return CacheOps::mkdirat(dir, name, mode); });
  }
  int set_lock(int fd, short type, std::uint64_t start, std::uint64_t bytes) override {
    return or_tap("set_lock", [&] { return CacheOps::set_lock(fd, type, start, bytes); });
  }
  int fstat(int fd, struct stat* out) override {
    return or_tap("fstat", [&] { return CacheOps::fstat(fd, out); });
  }
  int fstatat(int dir, const char* name, struct stat* out) override {
    return or_tap("fstatat", [&] { return CacheOps::fstatat(dir, name, out); });
  }
  ssize_t preadv(int fd, const struct iovec* parts, int count, std::uint64_t offset,
                 int flags) override {
    return or_tap("preadv", [&] { return CacheOps::preadv(fd, parts, count, offset, flags); });
  }
  ssize_t pwrite(int fd, const std::byte* bytes, std::size_t size, std::uint64_t offset) override {
    return or_tap("pwrite", [&] { return CacheOps::pwrite(fd, bytes, size, offset); });
  }
  int ftruncate(int fd, std::uint64_t size) override {
    return or_tap("ftruncate", [&] { return CacheOps::ftruncate(fd, size); });
  }
  int fsync(int) override {  // takes 40 ms on some disks, and no test cuts the power
    return or_tap("fsync", [] { return 0; });
  }
  int renameat2(int from_dir, const char* from, int to_dir, const char* to,
                unsigned int flags) override {
    return or_tap(flags == 0 ? "renameat" : "renameat2",
                  [&] { return CacheOps::renameat2(from_dir, from, to_dir, to, flags); });
  }
  int linkat(int from_dir, const char* from, int to_dir, const char* to) override {
    return or_tap("linkat", [&] { return CacheOps::linkat(from_dir, from, to_dir, to); });
  }
  int unlinkat(int dir, const char* name) override {
    return or_tap("unlinkat", [&] { return CacheOps::unlinkat(dir, name); });
  }
  int list(int dir, const std::function<bool(const char*)>& each) override {
    return or_tap("list", [&] { return CacheOps::list(dir, each); });
  }

 protected:
  // 0 lets the call through, -errno is answered instead.
  virtual int tap(std::string_view call) = 0;
  virtual void was_opened(int fd) { static_cast<void>(fd); }
  virtual void closed(int fd) { static_cast<void>(fd); }

 private:
  template <class Real>
  auto or_tap(std::string_view call, const Real& real) -> decltype(real()) {
    const int answer = tap(call);
    return answer != 0 ? answer : real();
  }
  template <class Real>
  int opened(std::string_view call, const Real& real) {
    const int fd = or_tap(call, real);
    if (fd >= 0) was_opened(fd);
    return fd;
  }
};

}  // namespace headpond
