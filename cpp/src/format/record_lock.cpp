#include "format/record_lock.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

namespace headpond {
namespace {

// Whether the lock is ours now. Errors: those of fcntl(2).
Result<bool> try_lock(int fd, const std::string& path) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(fd, F_SETLK, &whole) == 0) return true;
  if (errno == EAGAIN || errno == EACCES || errno == EINTR) return false;
  return system_error(errno, "locking", path);
}

// Does the path still name the file that is open? The holder before us removed it.
bool still_named(int fd, const std::string& path) {
  struct stat open_file {
  }, named{};
  return ::fstat(fd, &open_file) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

}  // namespace

Result<RecordLock> RecordLock::acquire(std::string path, const std::function<bool()>& proceed) {
  for (;;) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!fd) return system_error(errno, "creating", path);
    for (;;) {
      const auto locked = try_lock(fd.get(), path);
      if (!locked) return locked.error();
      if (*locked && still_named(fd.get(), path)) return RecordLock(std::move(path), std::move(fd));
      if (*locked) break;
      if (proceed && !proceed())
        return Error(ErrorCode::cancelled, "waiting for another process was stopped");
      // Nothing tells of a lock that became free except F_SETLKW, which cannot be given up.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

RecordLock::~RecordLock() {
  if (fd_) ::unlink(path_.c_str());
}

}  // namespace headpond
