#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace headpond {

// What the ring is asked to do; for FileOps::ring_result.
enum class RingCall : std::uint8_t {
  open,
  read,
  read_fixed,
  close,
  chain_open,
  chain_read,
  chain_close
};

// The system calls of the local store. The base class makes them; tests derive
// from it and alter single answers (short reads, EIO, EMFILE, a refused ring).
// Results are those of the call, or -errno. Safe to call from any thread.
class FileOps {
 public:
  virtual ~FileOps() = default;

  // `cached_only`: EAGAIN where the path is not in memory (openat2, RESOLVE_CACHED).
  virtual int open(const char* path, int flags, bool cached_only);
  virtual int fstat(int fd, struct stat* out);
  virtual int stat(const char* path, struct stat* out);
  // preadv2 of one buffer; `flags` as there (RWF_NOWAIT).
  virtual ssize_t pread(int fd, std::byte* out, std::size_t bytes, std::uint64_t offset, int flags);

  // CLOCK_MONOTONIC_COARSE in ns: when a handle is to be looked at again.
  virtual std::int64_t now_ns();

  // Asked before a ring is made and before buffers are registered: 0, or -errno
  // to be answered instead.
  virtual int ring_setup() { return 0; }
  // Asked before what is queued is submitted: 0, or -errno to be answered instead.
  virtual int ring_submit() { return 0; }
  virtual int ring_register_buffers(std::size_t bytes) { return static_cast<void>(bytes), 0; }
  // A completion's result on its way to the reactor. kLost: this one never comes.
  static constexpr int kLost = 1 << 30;
  virtual int ring_result(RingCall call, int result) { return static_cast<void>(call), result; }
};

}  // namespace headpond
