#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "headpond/result.h"
#include "io/counters.h"
#include "io/file_ops.h"

namespace headpond {

// The end of one operation: its token, and the call's result or -errno.
struct Completion {
  std::uint64_t token = 0;
  int result = 0;
};

// An io_uring: SINGLE_ISSUER and DEFER_TASKRUN where the kernel has them (6.1),
// not inherited by forked children. Made and used by one thread. Operations are
// queued by the calls named after them and start at the next `enter`; paths and
// iovecs stay in place until they are complete.
class Ring {
 public:
  // Errors: unsupported, with the reason: no ring, or one without plain reads.
  static Result<std::unique_ptr<Ring>> make(FileOps& ops, Counters& counters, unsigned depth);
  ~Ring();

  bool can_open() const;
  bool can_read_fixed() const;
  // Direct descriptors for chains; 0: none.
  unsigned direct_slots() const;

  // Reads that may be under way at once so that every completion has its place (a chain
  // has three): the kernel keeps what does not fit, and may refuse work until it is taken.
  unsigned reads_max() const;

  // Registers staging; false: the limit on locked memory does not allow it.
  bool register_buffers(std::span<const struct iovec> buffers);

  void open(std::uint64_t token, const char* path, int flags);
  void read(std::uint64_t token, int fd, std::span<std::byte> out, std::uint64_t offset);
  void read_fixed(std::uint64_t token, int fd, std::span<std::byte> out, std::uint64_t offset,
                  unsigned buffer);
  // open, read from the start and close, linked: the read runs when the open was
  // good, the close after the read, good or not. Three completions in any case.
  void read_whole(std::uint64_t open_token, std::uint64_t read_token, std::uint64_t close_token,
                  unsigned slot, const char* path, std::span<const struct iovec> out);
  void cancel_all(std::uint64_t token);

  // Submits what is queued; with `wait`, sleeps until something completes.
  void enter(bool wait);
  // Takes completions off the ring, at most out.size(); returns how many.
  std::size_t completions(std::span<Completion> out);

 private:
  struct State;
  explicit Ring(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace headpond
