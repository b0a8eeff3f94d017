#include "io/local_files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "io/allocate_whole.h"

#if defined(__SANITIZE_ADDRESS__)
#define HEADPOND_LEAKS_ARE_WATCHED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEADPOND_LEAKS_ARE_WATCHED
#endif
#endif
#ifdef HEADPOND_LEAKS_ARE_WATCHED
#include <sanitizer/lsan_interface.h>
#endif

namespace headpond {
namespace {

constexpr std::int64_t kCheckEvery_ns = 1'000'000'000;
constexpr std::size_t kEvictStep = 16;
// Non-blocking, so that a FIFO does not hang the opener; without a controlling terminal.
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

// The kernel may still write to `out`, so what `done` holds is never freed.
void keep_for_ever(LocalRead read) {
  const auto* kept = new LocalRead(std::move(read));
#ifdef HEADPOND_LEAKS_ARE_WATCHED
  __lsan_ignore_object(kept);
#endif
  static_cast<void>(kept);
}

}  // namespace

Error LocalRead::cancelled() const {
  return root->at(Error(ErrorCode::cancelled, "the read was cancelled"), request.object, range());
}

void LocalRead::finish(Result<ReadOutcome> outcome, Counters& counters) {
  if (outcome) {
    counters.add(Count::cold_reads);
    counters.add(Count::cold_bytes, outcome->bytes);
  } else {
    counters.add(Count::failures);
  }
  if (!root->in_flight.begin_done()) {
    return keep_for_ever(std::move(*this));
  }
  const auto done = std::move(request.done);
  done(std::move(outcome));
  root->in_flight.end_done();
}

bool is_whole_file(const ObjectVersion& expected, std::uint64_t offset, std::size_t bytes) {
  return offset == 0 && expected.size == bytes && bytes <= kWholeFileMax;
}

LocalFiles::LocalFiles(std::unique_ptr<FileOps> ops, std::size_t handles_max)
    : ops_(std::move(ops)), handles_(handles_max == 0 ? default_handles_max() : handles_max) {}

int LocalFiles::open_descriptor(const char* path, bool cached_only) {
  for (;;) {
    counters_.add(Count::system_calls);
    const int fd = ops_->open(path, kOpenFlags, cached_only);
    const bool used_up = fd == -EMFILE || fd == -ENFILE;
    if (fd == -EINTR || (used_up && handles_.evict(kEvictStep) > 0)) {
      counters_.add(Count::retries);
      continue;
    }
    if (fd >= 0) counters_.add(Count::opens);
    return fd;
  }
}

Error LocalFiles::no_handles(int error_number) const {
  struct rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const char* whose = error_number == EMFILE ? "this process (ulimit -n: "
                                             : "the machine (fs.file-max; ulimit -n: ";
  return Error(ErrorCode::resource_limit,
               "no file handle is left in " + std::string(whose) + std::to_string(limit.rlim_cur) +
                   "; headpond caches " + std::to_string(handles_.size()) + " of at most " +
                   std::to_string(handles_.max()) + ")");
}

Result<std::shared_ptr<FileHandle>> LocalFiles::open(const LocalRoot& root, std::string_view name,
                                                     bool cached_only) {
  CPath path;
  const char* text = path.join(root.path, name);
  if (text == nullptr) return root.failed(ENAMETOOLONG, "open", name, {});
  const int fd = open_descriptor(text, cached_only);
  if (fd == -EAGAIN && cached_only) return std::shared_ptr<FileHandle>();
  if (fd == -EMFILE || fd == -ENFILE) return root.at(no_handles(-fd), name, {});
  if (fd < 0) return root.failed(-fd, "open", name, {});
  return adopt(root, name, UniqueFd(fd));
}

Result<std::shared_ptr<FileHandle>> LocalFiles::adopt(const LocalRoot& root, std::string_view name,
                                                      UniqueFd fd) {
  struct stat status = {};
  counters_.add(Count::system_calls);
  if (const int result = ops_->fstat(fd.get(), &status); result < 0) {
    return root.failed(-result, "fstat", name, {});
  }
  if (!S_ISREG(status.st_mode)) return root.at(not_regular_error(status.st_mode), name, {});
  auto handle = std::make_shared<FileHandle>();
  handle->fd = std::move(fd);
  handle->version = version_of(status);
  handle->device = status.st_dev;
  handle->checked_ns = ops_->now_ns();
  return handle;
}

std::shared_ptr<FileHandle> LocalFiles::cached(const LocalRoot& root, std::string_view name,
                                               const ObjectVersion& expected) {
  auto handle = handles_.find(root.id, name);
  if (handle == nullptr) return nullptr;
  bool good = expected.is_any() || expected.accepts(handle->version);
  const std::int64_t now = ops_->now_ns();
  if (good && now - handle->checked_ns.load(std::memory_order_relaxed) > kCheckEvery_ns) {
    struct stat status = {};
    counters_.add(Count::system_calls);
    good = ops_->fstat(handle->fd.get(), &status) == 0 && version_of(status) == handle->version;
    handle->checked_ns.store(now, std::memory_order_relaxed);
  }
  if (good) return handle;
  handles_.erase(root.id, name, handle);
  return nullptr;
}

Result<std::shared_ptr<FileHandle>> LocalFiles::acquire(const LocalRoot& root,
                                                        std::string_view name,
                                                        const ObjectVersion& expected,
                                                        bool cached_only) {
  if (auto handle = cached(root, name, expected); handle != nullptr) return handle;
  auto opened = open(root, name, cached_only);
  if (!opened || *opened == nullptr) return opened;
  if (!expected.accepts((*opened)->version)) {
    return root.at(changed_error(expected, (*opened)->version), name, {});
  }
  return handles_.insert(root.id, name, std::move(*opened));
}

std::uint64_t LocalFiles::due(const ObjectVersion& version, std::uint64_t offset,
                              std::uint64_t bytes) {
  // /proc and its like say 0 and hold more: there the end shows when reading.
  constexpr auto kOffsetMax = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  const std::uint64_t size = version.size == 0 ? kOffsetMax : version.size;
  return offset >= size ? 0 : std::min(bytes, size - offset);
}

Error LocalFiles::ended_early(const FileHandle& handle, std::uint64_t offset, std::uint64_t found) {
  struct stat status = {};
  counters_.add(Count::system_calls);
  if (ops_->fstat(handle.fd.get(), &status) == 0) {
    const ObjectVersion now = version_of(status);
    if (now != handle.version) return changed_error(handle.version, now);
  }
  return Error(ErrorCode::object_changed, "the object ends at byte " +
                                              std::to_string(offset + found) + " and says " +
                                              std::to_string(handle.version.size) + " bytes");
}

bool LocalFiles::holds_more(const FileHandle& handle) {
  if (handle.version.size != 0) return false;
  std::byte more;
  return fill(handle.fd.get(), {&more, 1}, 0, 0) > 0;
}

Error LocalFiles::more_error() {
  return Error(ErrorCode::object_changed, "the object says 0 bytes and holds more");
}

ssize_t LocalFiles::fill(int fd, std::span<std::byte> out, std::uint64_t offset, int flags,
                         bool again) {
  std::size_t have = 0;
  std::uint64_t calls = 0;
  ssize_t result = 0;
  while (have < out.size()) {
    ++calls;
    result = ops_->pread(fd, out.data() + have, out.size() - have, offset + have, flags);
    if (result == 0) break;
    if (result > 0) {
      have += static_cast<std::size_t>(result);
      continue;
    }
    if (result == -EINTR || (result == -EAGAIN && flags == 0)) continue;
    if (result == -EIO && again) {
      again = false;
      continue;
    }
    break;
  }
  counters_.add(Count::system_calls, calls);
  if (calls > 1) counters_.add(Count::retries, calls - 1);
  return result < 0 ? result : static_cast<ssize_t>(have);
}

Result<ReadOutcome> LocalFiles::read(LocalRead& read) {
  const LocalRoot& root = *read.root;
  ReadRequest& request = read.request;
  ByteRange range = read.range();
  // Of an object wanted whole the size must be that of now: no cached handle.
  const bool whole =
      request.allocate || is_whole_file(request.expected, request.offset, request.out.size());
  auto opened = whole ? open(root, request.object, false)
                      : acquire(root, request.object, request.expected, false);
  if (!opened) return std::move(opened).error().at_range(range);
  const FileHandle& handle = **opened;
  if (!request.expected.accepts(handle.version)) {
    return root.at(changed_error(request.expected, handle.version), request.object, range);
  }
  if (request.allocate) {
    if (auto taken = allocate_whole(request, handle.version.size); !taken)
      return root.at(std::move(taken).error(), request.object, {0, handle.version.size});
    range = read.range();
  }
  const std::uint64_t bytes = due(handle.version, request.offset, request.out.size());
  const ssize_t got =
      fill(handle.fd.get(), request.out.first(bytes), request.offset, 0, !read.failed_once);
  if (got < 0) return root.failed(static_cast<int>(-got), "read", request.object, range);
  if (static_cast<std::uint64_t>(got) < bytes && handle.version.size != 0) {
    Error error = ended_early(handle, request.offset, static_cast<std::uint64_t>(got));
    if (!whole) handles_.erase(root.id, request.object, *opened);
    return root.at(std::move(error), request.object, range);
  }
  if (whole && holds_more(handle)) return root.at(more_error(), request.object, range);
  return ReadOutcome{static_cast<std::uint64_t>(got), handle.version};
}

Result<ObjectInfo> LocalFiles::stat(const LocalRoot& root, std::string_view name) {
  CPath path;
  const char* text = path.join(root.path, name);
  if (text == nullptr) return root.failed(ENAMETOOLONG, "stat", name, {});
  struct stat status = {};
  counters_.add(Count::system_calls);
  if (const int result = ops_->stat(text, &status); result < 0)
    return root.failed(-result, "stat", name, {});
  if (!S_ISREG(status.st_mode)) return root.at(not_regular_error(status.st_mode), name, {});
  return ObjectInfo{std::string(name), version_of(status)};
}

}  // namespace headpond
