// The part of RingReads that reads ranges of open files.

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "io/ring_active.h"
#include "io/ring_reads.h"

namespace headpond {
namespace {

constexpr std::size_t kStagingBlocks = 32;
constexpr std::size_t kFixedMin = 4;

std::uint64_t align_down(std::uint64_t value, std::uint64_t to) { return value / to * to; }
std::uint64_t align_up(std::uint64_t value, std::uint64_t to) {
  return align_down(value + to - 1, to);
}

}  // namespace

void RingReads::issue() {
  while (!issuing_.empty() && !free_operations_.empty()) {
    Active& active = *issuing_.front();
    if (active.read.stopped()) {
      active.error = active.read.cancelled();
      stop_issuing(active);
      end_range(active);
    } else if (!issue_next(active)) {
      return;  // staging comes back with the reads that hold it
    }
  }
}

bool RingReads::issue_next(Active& active) {
  const int block = active.direct ? staging_.take() : -1;
  if (active.direct && block < 0) return false;
  const std::uint64_t stop =
      std::min(active.end, align_down(active.next, Staging::kBlockBytes) + Staging::kBlockBytes);
  Operation& operation = *take_operation(active, RingCall::read);
  operation.offset = active.next;
  operation.out =
      active.read.request.out.subspan(active.next - active.read.request.offset, stop - active.next);
  operation.block = block;
  operation.block_offset = align_down(active.next, Staging::kAlignment);
  ++active.operations;
  active.next = stop;
  if (active.next == active.end) issuing_.pop_front();
  submit(operation);
  return true;
}

void RingReads::stop_issuing(Active& active) {
  active.next = active.end;
  std::erase(issuing_, &active);
}

void RingReads::submit(Operation& operation) {
  const FileHandle& handle = *operation.active->handle;
  const std::uint64_t id = token(&operation, Part::operation);
  operation.call = RingCall::read;
  if (operation.block < 0) return ring_.read(id, handle.fd.get(), operation.out, operation.offset);
  const std::uint64_t stop = align_up(operation.offset + operation.out.size(), Staging::kAlignment);
  const auto memory = staging_.bytes(operation.block).first(stop - operation.block_offset);
  const auto block = static_cast<unsigned>(operation.block);
  if (operation.plain || block >= fixed_blocks_) {
    return ring_.read(id, handle.direct.get(), memory, operation.block_offset);
  }
  operation.call = RingCall::read_fixed;
  ring_.read_fixed(id, handle.direct.get(), memory, operation.block_offset, block);
}

void RingReads::complete_read(Operation& operation, int result) {
  Active& active = *operation.active;
  if (result >= 0) {
    note(reads_, true, 0, "");
    operation.tries = 0;
    const auto bytes = static_cast<std::size_t>(result);
    return operation.block >= 0 ? take_direct(operation, bytes) : take_buffered(operation, bytes);
  }
  if (is_passing_error(result) && !active.read.stopped() && ++operation.tries < kRingTriesMax) {
    counters_.add(Count::retries);
    return submit(operation);
  }
  if (is_direct_refusal(operation, result)) {
    counters_.add(Count::retries);
    return submit(operation);
  }
  if (!is_passing_error(result)) note(reads_, false, result, "read");
  active.failure = result;
  stop_issuing(active);
  end_part(operation);
}

void RingReads::take_buffered(Operation& operation, std::size_t bytes) {
  Active& active = *operation.active;
  operation.offset += bytes;
  operation.out = operation.out.subspan(bytes);
  if (operation.out.empty()) return end_part(operation);
  if (bytes > 0) {  // a short read goes on at its new place
    counters_.add(Count::retries);
    return submit(operation);
  }
  if (!active.error) {
    const LocalRead& read = active.read;
    active.error = read.root->at(files_->ended_early(*active.handle, operation.offset, 0),
                                 read.request.object, read.range());
    files_->handles().erase(read.root->id, read.request.object, active.handle);
  }
  stop_issuing(active);
  end_part(operation);
}

void RingReads::take_direct(Operation& operation, std::size_t bytes) {
  const std::size_t before = operation.offset - operation.block_offset;
  const std::size_t useful = std::min(bytes > before ? bytes - before : 0, operation.out.size());
  if (useful > 0)
    std::memcpy(operation.out.data(), staging_.bytes(operation.block).data() + before, useful);
  counters_.add(Count::direct_bytes, useful);
  if (operation.plain) fixed_blocks_ = 0;  // what failed as a fixed read went well as another
  operation.offset += useful;
  operation.out = operation.out.subspan(useful);
  if (operation.out.empty()) return end_part(operation);
  // Short: the rest comes through the page cache, which also says where the file ends.
  staging_.give_back(std::exchange(operation.block, -1));
  counters_.add(Count::retries);
  submit(operation);
}

// Changes the operation to one that asks for less; false: that is not what is wrong.
bool RingReads::is_direct_refusal(Operation& operation, int result) {
  if (operation.block < 0 || result == -EIO || is_passing_error(result)) return false;
  if (operation.call == RingCall::read_fixed) {
    operation.plain = true;
    return true;
  }
  FileHandle& handle = *operation.active->handle;
  handle.direct_refused = true;
  operation.active->direct = false;
  operation.plain = false;
  staging_.give_back(std::exchange(operation.block, -1));
  say_once("O_DIRECT",
           "O_DIRECT is refused for " +
               operation.active->read.root->describe(operation.active->read.request.object) +
               " and its like; they are read through the page cache");
  return true;
}

bool RingReads::open_direct(Active& active) {
  FileHandle& handle = *active.handle;
  if (handle.direct_refused) return false;
  if (!staging_tried_) make_staging();
  if (!staging_.made()) return false;
  if (handle.direct) return true;
  const LocalRead& read = active.read;
  counters_.add(Count::system_calls, 2);
  UniqueFd fd(files_->ops().open(active.path.join(read.root->path, read.request.object),
                                 O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_DIRECT, false));
  struct stat status = {};
  // Only the very file that is open already will do.
  if (!fd || files_->ops().fstat(fd.get(), &status) != 0 || status.st_dev != handle.device ||
      version_of(status) != handle.version) {
    handle.direct_refused = true;
    return false;
  }
  counters_.add(Count::opens);
  handle.direct = std::move(fd);
  return true;
}

void RingReads::make_staging() {
  staging_tried_ = true;
  if (!staging_.make(kStagingBlocks)) {
    return say_once("staging",
                    "no memory for staging: large cold files are read through the page cache");
  }
  if (!ring_.can_read_fixed()) return;
  std::size_t count = kStagingBlocks;
  while (count >= kFixedMin && !ring_.register_buffers(staging_.buffers(count))) count /= 2;
  fixed_blocks_ = count >= kFixedMin ? count : 0;
  if (fixed_blocks_ == kStagingBlocks) return;
  struct rlimit limit = {};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  say_once("fixed buffers",
           std::to_string(fixed_blocks_) + " of " + std::to_string(kStagingBlocks) +
               " read buffers could be registered with io_uring (locked memory, ulimit -l: " +
               std::to_string(limit.rlim_cur / 1024) + " KiB); the others work without");
}

void RingReads::end_part(Operation& operation) {
  Active& active = *operation.active;
  release(operation);
  --active.operations;
  end_range(active);
}

void RingReads::end_range(Active& active) {
  if (active.operations > 0 || active.next < active.end) return;
  if (active.error) return finish(active, *std::exchange(active.error, std::nullopt));
  if (active.failure != 0) return hand_over(active, active.failure);
  finish(active, ReadOutcome{active.end - active.read.request.offset, active.handle->version});
}

}  // namespace headpond
