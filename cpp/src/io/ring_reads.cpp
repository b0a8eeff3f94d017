#include "io/ring_reads.h"

#include <fcntl.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/cpus.h"
#include "io/ring_active.h"

namespace headpond {
namespace {

constexpr unsigned kRefusalsMax = 16;
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

// Answers about the file or about handles, which say nothing about the ring.
bool is_about_file(int result) {
  switch (-result) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO:
    case EISDIR:
    case ESTALE:
    case EIO:
    case EMFILE:
    case ENFILE:
      return true;
    default:
      return false;
  }
}

}  // namespace

RingReads::RingReads(std::shared_ptr<LocalFiles> files, Ring& ring, unsigned depth,
                     std::shared_ptr<LogQueue> log, std::function<void(LocalRead)> give_up)
    : files_(std::move(files)),
      ring_(ring),
      log_(std::move(log)),
      give_up_(std::move(give_up)),
      counters_(files_->counters()),
      policy_(usable_memory_bytes()) {
  for (unsigned i = 0; i < depth; ++i) {
    actives_.push_back(std::make_unique<Active>());
    operations_.push_back(std::make_unique<Operation>());
    free_actives_.push_back(actives_.back().get());
    free_operations_.push_back(operations_.back().get());
  }
  for (unsigned slot = ring.direct_slots(); slot > 0; --slot) free_slots_.push_back(slot - 1);
  if (free_slots_.empty()) chains_.off = true;
  if (!ring.can_open()) opens_.off = true;
}

RingReads::~RingReads() = default;

void RingReads::drop_stopped() {
  std::deque<LocalRead> kept;
  for (auto& read : waiting_) {
    if (read.stopped()) {
      read.finish(read.cancelled(), counters_);
    } else {
      kept.push_back(std::move(read));
    }
  }
  waiting_.swap(kept);
}

void RingReads::pump() {
  while (!waiting_.empty() && !free_actives_.empty() && !free_operations_.empty()) {
    Active& active = *free_actives_.back();
    free_actives_.pop_back();
    ++active_;
    active.read = std::move(waiting_.front());
    waiting_.pop_front();
    start(active);
  }
  issue();
}

void RingReads::start(Active& active) {
  LocalRead& read = active.read;
  if (read.stopped()) return finish(active, read.cancelled());
  const char* path = active.path.join(read.root->path, read.request.object);
  // An object of unknown size needs its fstat first.
  if (path == nullptr || reads_.off || read.request.allocate) return hand_over(active, 0);
  active.whole = is_whole_file(read.request.expected, read.request.offset, read.request.out.size());
  if (active.whole && !chains_.off && !free_slots_.empty()) return start_chain(active, path);
  if (!active.whole) {
    active.handle = files_->cached(*read.root, read.request.object, read.request.expected);
    if (active.handle != nullptr) return start_range(active);
  }
  if (opens_.off) return hand_over(active, 0);
  Operation& operation = *take_operation(active, RingCall::open);
  ring_.open(token(&operation, Part::operation), path, kOpenFlags);
}

void RingReads::start_chain(Active& active, const char* path) {
  active.slot = free_slots_.back();
  free_slots_.pop_back();
  const auto out = active.read.request.out;
  // One byte more than there should be: a file that grew shows itself.
  active.parts[0] = {out.data(), out.size()};
  active.parts[out.empty() ? 0 : 1] = {&active.spill, 1};
  counters_.add(Count::opens);
  ring_.read_whole(token(&active, Part::chain_open), token(&active, Part::chain_read),
                   token(&active, Part::chain_close), active.slot, path,
                   std::span(active.parts).first(out.empty() ? 1 : 2));
}

void RingReads::complete(const Completion& completion) {
  const auto part = static_cast<Part>(completion.token & 7);
  void* object = reinterpret_cast<void*>(completion.token & ~std::uint64_t{7});
  FileOps& ops = files_->ops();
  if (part != Part::operation) {
    const auto call = part == Part::chain_open   ? RingCall::chain_open
                      : part == Part::chain_read ? RingCall::chain_read
                                                 : RingCall::chain_close;
    const int result = ops.ring_result(call, completion.result);
    if (result != FileOps::kLost) complete_chain(*static_cast<Active*>(object), part, result);
    return;
  }
  Operation& operation = *static_cast<Operation*>(object);
  const int result = ops.ring_result(operation.call, completion.result);
  if (result == FileOps::kLost) return;
  if (operation.call == RingCall::open) {
    opened(operation, result);
  } else {
    complete_read(operation, result);
  }
}

void RingReads::complete_chain(Active& active, Part part, int result) {
  if (part == Part::chain_open) active.open_result = result;
  if (part == Part::chain_read) active.read_result = result;
  if (++active.answers == 3) finish_chain(active);
}

void RingReads::finish_chain(Active& active) {
  free_slots_.push_back(active.slot);
  const auto size = static_cast<std::uint64_t>(active.read.request.out.size());
  const bool filled = active.open_result >= 0 && active.read_result >= 0 &&
                      static_cast<std::uint64_t>(active.read_result) == size;
  ObjectVersion version;
  if (filled && version_after_chain(active, version)) {
    note(chains_, true, 0, "");
    return finish(active, ReadOutcome{size, std::move(version)});
  }
  const int result = active.open_result < 0 ? active.open_result : active.read_result;
  if (result < 0 && !is_passing_error(result))
    note(chains_, false, result, "linked open, read and close");
  hand_over(active, result);
}

// A direct descriptor has no fstat. The path's inode is in memory now, so this does not wait.
bool RingReads::version_after_chain(Active& active, ObjectVersion& version) {
  struct stat status = {};
  const char* path = active.path.join(active.read.root->path, active.read.request.object);
  counters_.add(Count::system_calls);
  if (files_->ops().stat(path, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  version = version_of(status);
  return active.read.request.expected.accepts(version);
}

void RingReads::opened(Operation& operation, int result) {
  Active& active = *operation.active;
  const bool retry =
      is_passing_error(result) && !active.read.stopped() && ++operation.tries < kRingTriesMax;
  if (retry) {
    counters_.add(Count::retries);
    const char* path = active.path.join(active.read.root->path, active.read.request.object);
    ring_.open(token(&operation, Part::operation), path, kOpenFlags);
    return;
  }
  release(operation);
  if (result < 0) {
    if (!is_passing_error(result)) note(opens_, false, result, "open");
    return hand_over(active, result);
  }
  note(opens_, true, 0, "");
  counters_.add(Count::opens);
  LocalRead& read = active.read;
  auto handle = files_->adopt(*read.root, read.request.object, UniqueFd(result));
  if (!handle) return finish(active, std::move(handle).error().at_range(read.range()));
  if (!read.request.expected.accepts((*handle)->version)) {
    return finish(active, read.root->at(changed_error(read.request.expected, (*handle)->version),
                                        read.request.object, read.range()));
  }
  active.handle = active.whole ? std::move(*handle)
                               : files_->handles().insert(read.root->id, read.request.object,
                                                          std::move(*handle));
  start_range(active);
}

void RingReads::start_range(Active& active) {
  const ReadRequest& request = active.read.request;
  const FileHandle& handle = *active.handle;
  // Files that say 0 bytes and sparse ends of the offset range: the blocking path knows them.
  if (handle.version.size == 0) return hand_over(active, 0);
  const std::uint64_t bytes = LocalFiles::due(handle.version, request.offset, request.out.size());
  active.next = request.offset;
  active.end = request.offset + bytes;
  if (bytes == 0) return end_range(active);
  active.direct =
      policy_.direct(handle.identity(), handle.version.size, bytes) && open_direct(active);
  issuing_.push_back(&active);
}

void RingReads::finish(Active& active, Result<ReadOutcome> outcome) {
  LocalRead read = std::move(active.read);
  release(active);
  read.finish(std::move(outcome), counters_);
}

void RingReads::hand_over(Active& active, int result) {
  LocalRead read = std::move(active.read);
  release(active);
  if (read.stopped()) return read.finish(read.cancelled(), counters_);
  read.failed_once = result == -EIO;
  if (result < 0) counters_.add(Count::retries);
  give_up_(std::move(read));
}

void RingReads::release(Active& active) {
  active.read = {};
  active.answers = 0;
  active.handle.reset();
  active.direct = false;
  active.failure = 0;
  active.error.reset();
  free_actives_.push_back(&active);
  --active_;
}

RingReads::Operation* RingReads::take_operation(Active& active, RingCall call) {
  Operation* operation = free_operations_.back();
  free_operations_.pop_back();
  *operation = {};
  operation->active = &active;
  operation->call = call;
  return operation;
}

void RingReads::release(Operation& operation) {
  if (operation.block >= 0) staging_.give_back(std::exchange(operation.block, -1));
  free_operations_.push_back(&operation);
}

void RingReads::note(Health& health, bool good, int result, const char* what) {
  if (good) {
    health.refused = 0;
    return;
  }
  if (is_about_file(result) || health.off || ++health.refused < kRefusalsMax) return;
  health.off = true;
  say_once(what, std::string("io_uring refuses to ") + what + " (" +
                     std::generic_category().message(-result) + "); threads do it from now on");
}

void RingReads::say_once(const char* key, std::string text) {
  if (log_ != nullptr) log_->push_once(LogLevel::info, key, std::move(text));
}

}  // namespace headpond
