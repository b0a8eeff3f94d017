#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "headpond/log.h"
#include "headpond/store.h"

namespace headpond {

class HttpIo;

enum class IoBackend : std::uint8_t { automatic, uring, threads };

struct IoOptions {
  IoBackend backend = IoBackend::automatic;
  unsigned depth = 64;          // reads in flight on the ring; small files: linked chains
  unsigned threads = 16;        // of the pread pool, started as needed
  std::size_t handles_max = 0;  // cached file handles; 0: a quarter of RLIMIT_NOFILE, at most 4,096
};

// What runs and why, for hp.info() and the one INFO line.
struct IoStatus {
  std::string backend;  // "uring" or "threads"
  std::string reason;   // of a fall-back, else empty
  bool fixed_buffers = false;
};

// What local reads did since the start, all stores together. Warm: by the caller
// in `read_now` without waiting; cold: the others.
struct IoCounters {
  std::uint64_t warm_reads = 0;  // pieces
  std::uint64_t warm_bytes = 0;
  std::uint64_t cold_reads = 0;  // requests of `read`, pieces of `read_now` that waited
  std::uint64_t cold_bytes = 0;
  std::uint64_t direct_bytes = 0;  // of cold_bytes: past the page cache (O_DIRECT)
  std::uint64_t system_calls = 0;  // open, fstat, stat, pread; enters of the ring
  std::uint64_t ring_entries = 0;  // operations given to the ring
  std::uint64_t opens = 0;         // of files, by either way
  std::uint64_t probes = 0;        // of read_now with Wait::never that asked the kernel
  std::uint64_t retries = 0;       // short reads, EINTR, EAGAIN, EIO, EMFILE tried again
  std::uint64_t failures = 0;      // reads that ended with an error

  std::uint64_t reads() const { return warm_reads + cold_reads; }
  std::uint64_t bytes() const { return warm_bytes + cold_bytes; }
};

// The reactor that local stores share: one ring, or one pool of pread threads,
// and the cache of file handles. No thread runs before the first cold read.
//
// A file's version is its size, mtime in ns and inode, compared with the expected one:
// - of a file that is read as a whole (up to 1 MiB): at every read, before its bytes;
// - of a larger one and of ranges, whose handle is kept: when it is opened, and before the
//   first read that comes more than a second after the last comparison.
// So a file that is replaced (by rename) is never read in a mixture, and one that shrank is
// object_changed at once. One that is rewritten in place at the same size is object_changed
// from a second later on; reads in between may return old bytes, new ones or both. Who writes
// in place and sets the old mtime again is not noticed: objects are immutable by contract.
//
// Safe to call from any thread; outlives its stores.
class LocalIo {
 public:
  virtual ~LocalIo() = default;
  // A store over the directory `root` (a path; "" is the working directory, "/" the root).
  virtual std::shared_ptr<Store> open(const Uri& root) = 0;
  virtual IoStatus status() const = 0;
  virtual IoCounters counters() const = 0;
  // As Store::close, for all of them.
  virtual void close() = 0;
};

// `automatic` and `uring` fall back to threads where the kernel refuses a ring;
// one INFO record says why. Never fails.
std::shared_ptr<LocalIo> make_local_io(const IoOptions& options, std::shared_ptr<LogQueue> log);

// The one list of stores (builtin_stores.cpp).
void add_builtin_stores(StoreRegistry& registry, std::shared_ptr<LocalIo> local,
                        std::shared_ptr<HttpIo> http);

}  // namespace headpond
