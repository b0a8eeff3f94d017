#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "io/file_ops.h"

namespace headpond {

// The real system calls with answers that a test may alter. Hooks are set before use.
class FaultyOps final : public FileOps {
 public:
  // Each gets the real call's answer (or would-be call) and says what is answered.
  std::function<int(const char* path, int flags, std::function<int()> real)> on_open;
  std::function<ssize_t(std::byte* out, std::size_t bytes, std::uint64_t offset, int flags,
                        std::function<ssize_t(std::size_t)> real)>
      on_pread;
  std::function<int(RingCall call, int result)> on_ring_result;
  std::atomic<std::int64_t> extra_ns = 0;  // added to the clock
  std::function<int()> on_setup;
  std::function<int()> on_submit;
  int setup_result = 0;
  int register_result = 0;

  int open(const char* path, int flags, bool cached_only) override {
    const auto real = [&] { return FileOps::open(path, flags, cached_only); };
    return on_open ? on_open(path, flags, real) : real();
  }
  ssize_t pread(int fd, std::byte* out, std::size_t bytes, std::uint64_t offset,
                int flags) override {
    const auto real = [&](std::size_t n) { return FileOps::pread(fd, out, n, offset, flags); };
    return on_pread ? on_pread(out, bytes, offset, flags, real) : real(bytes);
  }
  std::int64_t now_ns() override { return FileOps::now_ns() + extra_ns; }
  int ring_setup() override { return on_setup ? on_setup() : setup_result; }
  int ring_submit() override { return on_submit ? on_submit() : 0; }
  int ring_register_buffers(std::size_t) override { return register_result; }
  int ring_result(RingCall call, int result) override {
    return on_ring_result ? on_ring_result(call, result) : result;
  }
};

}  // namespace headpond
