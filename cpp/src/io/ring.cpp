#include "io/ring.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <ctime>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace headpond {
namespace {

struct FreeProbe {
  void operator()(io_uring_probe* probe) const { io_uring_free_probe(probe); }
};

bool supports(const io_uring_probe* probe, int operation) {
  return probe != nullptr && io_uring_opcode_supported(probe, operation) != 0;
}

std::string refusal(int error_number) {
  std::string text = "io_uring_setup: " + std::generic_category().message(error_number);
  if (error_number == EPERM) text += " (seccomp, or the sysctl kernel.io_uring_disabled)";
  if (error_number == ENOMEM) {
    struct rlimit limit = {};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    text += " (locked memory, ulimit -l: " + std::to_string(limit.rlim_cur / 1024) + " KiB)";
  }
  return text;
}

// 0, or -errno. Small rings where locked memory is scarce, plain ones before 6.1.
int setup(FileOps& ops, io_uring& ring, unsigned entries, bool& modern) {
  int result = -EINVAL;
  for (const unsigned flags : {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, 0u}) {
    for (const unsigned size : {entries, std::min(entries, 16u)}) {
      io_uring_params params = {};
      params.flags = flags | IORING_SETUP_CQSIZE;
      params.cq_entries = size * 4;
      result = ops.ring_setup();
      if (result == 0) result = io_uring_queue_init_params(size, &ring, &params);
      modern = flags != 0;
      if (result == 0) return 0;
      if (result != -ENOMEM) break;
    }
    if (result != -EINVAL) return result;
  }
  return result;
}

}  // namespace

struct Ring::State {
  State(FileOps& file_ops, Counters& sums) : ops(file_ops), counters(sums) {}
  ~State() {
    if (made) io_uring_queue_exit(&ring);
  }

  // Room for `count` entries that must go together. The kernel may refuse work until completions
  // are taken: those are kept for the next who asks for some.
  void make_room(unsigned count) {
    while (io_uring_sq_space_left(&ring) < count) {
      enter(false);
      if (io_uring_sq_space_left(&ring) >= count) break;
      std::array<Completion, 128> taken;
      const std::size_t number = take(taken);
      early.insert(early.end(), taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(number));
    }
    counters.add(Count::ring_entries, count);
  }
  io_uring_sqe* entry() {
    make_room(1);
    return io_uring_get_sqe(&ring);
  }
  void enter(bool wait) {
    counters.add(Count::system_calls);
    wait = wait && early.empty();
    int result = ops.ring_submit();
    if (result == 0) result = wait ? io_uring_submit_and_wait(&ring, 1) : io_uring_submit(&ring);
    // Errors leave the entries queued; the caller takes completions and comes again. Where there
    // are none, memory is short: it is given time instead of asked again at once.
    if ((result == -EAGAIN || result == -EBUSY) && io_uring_cq_ready(&ring) == 0 && early.empty()) {
      const timespec pause = {0, 1'000'000};
      nanosleep(&pause, nullptr);
    }
  }
  std::size_t take(std::span<Completion> out) {
    std::array<io_uring_cqe*, 128> found;
    const unsigned wanted = static_cast<unsigned>(std::min(out.size(), found.size()));
    const unsigned count = io_uring_peek_batch_cqe(&ring, found.data(), wanted);
    for (unsigned i = 0; i < count; ++i)
      out[i] = {io_uring_cqe_get_data64(found[i]), found[i]->res};
    io_uring_cq_advance(&ring, count);
    return count;
  }

  FileOps& ops;
  Counters& counters;
  io_uring ring = {};
  std::vector<Completion> early;  // taken before anybody asked
  bool made = false;
  bool can_open = false;
  bool can_read_fixed = false;
  unsigned direct_slots = 0;
};

Ring::Ring(std::unique_ptr<State> state) : state_(std::move(state)) {}
Ring::~Ring() = default;

Result<std::unique_ptr<Ring>> Ring::make(FileOps& ops, Counters& counters, unsigned depth) {
  auto state = std::make_unique<State>(ops, counters);
  bool modern = false;
  const unsigned entries = std::bit_ceil(std::clamp(4 * depth, 16u, 4096u));
  if (const int result = setup(ops, state->ring, entries, modern); result < 0) {
    return Error(ErrorCode::unsupported, refusal(-result));
  }
  state->made = true;
  io_uring_ring_dontfork(&state->ring);
  const std::unique_ptr<io_uring_probe, FreeProbe> probe(io_uring_get_probe_ring(&state->ring));
  if (!supports(probe.get(), IORING_OP_READ)) {
    return Error(ErrorCode::unsupported, "io_uring has no IORING_OP_READ here");
  }
  state->can_open = supports(probe.get(), IORING_OP_OPENAT);
  state->can_read_fixed = supports(probe.get(), IORING_OP_READ_FIXED);
  // A linked read finds the file of the open before it since 5.18.
  if (modern && state->can_open && supports(probe.get(), IORING_OP_READV) &&
      supports(probe.get(), IORING_OP_CLOSE)) {
    // The table may not be larger than RLIMIT_NOFILE.
    for (unsigned slots = depth; slots >= 4 && state->direct_slots == 0; slots /= 2) {
      if (io_uring_register_files_sparse(&state->ring, slots) == 0) state->direct_slots = slots;
    }
  }
  return std::unique_ptr<Ring>(new Ring(std::move(state)));
}

bool Ring::can_open() const { return state_->can_open; }
bool Ring::can_read_fixed() const { return state_->can_read_fixed; }
unsigned Ring::direct_slots() const { return state_->direct_slots; }
unsigned Ring::reads_max() const { return state_->ring.cq.ring_entries / 4 - 1; }

bool Ring::register_buffers(std::span<const struct iovec> buffers) {
  std::size_t bytes = 0;
  for (const auto& buffer : buffers) bytes += buffer.iov_len;
  int result = state_->ops.ring_register_buffers(bytes);
  if (result == 0) {
    result = io_uring_register_buffers(&state_->ring, buffers.data(),
                                       static_cast<unsigned>(buffers.size()));
  }
  return result == 0;
}

void Ring::open(std::uint64_t token, const char* path, int flags) {
  io_uring_sqe* sqe = state_->entry();
  io_uring_prep_openat(sqe, AT_FDCWD, path, flags, 0);
  io_uring_sqe_set_data64(sqe, token);
}

void Ring::read(std::uint64_t token, int fd, std::span<std::byte> out, std::uint64_t offset) {
  io_uring_sqe* sqe = state_->entry();
  io_uring_prep_read(sqe, fd, out.data(), static_cast<unsigned>(out.size()), offset);
  io_uring_sqe_set_data64(sqe, token);
}

void Ring::read_fixed(std::uint64_t token, int fd, std::span<std::byte> out, std::uint64_t offset,
                      unsigned buffer) {
  io_uring_sqe* sqe = state_->entry();
  io_uring_prep_read_fixed(sqe, fd, out.data(), static_cast<unsigned>(out.size()), offset,
                           static_cast<int>(buffer));
  io_uring_sqe_set_data64(sqe, token);
}

void Ring::read_whole(std::uint64_t open_token, std::uint64_t read_token, std::uint64_t close_token,
                      unsigned slot, const char* path, std::span<const struct iovec> out) {
  state_->make_room(3);
  io_uring_sqe* open = io_uring_get_sqe(&state_->ring);
  io_uring_prep_openat_direct(open, AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, slot);
  io_uring_sqe_set_data64(open, open_token);
  open->flags |= IOSQE_IO_LINK;
  io_uring_sqe* read = io_uring_get_sqe(&state_->ring);
  io_uring_prep_readv(read, static_cast<int>(slot), out.data(), static_cast<unsigned>(out.size()),
                      0);
  io_uring_sqe_set_data64(read, read_token);
  // Hard: the read is asked for a byte more than there is, and a short read breaks a soft link.
  read->flags |= IOSQE_FIXED_FILE | IOSQE_IO_HARDLINK;
  io_uring_sqe* close = io_uring_get_sqe(&state_->ring);
  io_uring_prep_close_direct(close, slot);
  io_uring_sqe_set_data64(close, close_token);
}

void Ring::cancel_all(std::uint64_t token) {
  io_uring_sqe* sqe = state_->entry();
  io_uring_prep_cancel(sqe, nullptr, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
  io_uring_sqe_set_data64(sqe, token);
}

void Ring::enter(bool wait) { state_->enter(wait); }

std::size_t Ring::completions(std::span<Completion> out) {
  std::vector<Completion>& early = state_->early;
  if (early.empty()) return state_->take(out);
  const std::size_t count = std::min(out.size(), early.size());
  std::copy_n(early.begin(), count, out.begin());
  early.erase(early.begin(), early.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

}  // namespace headpond
