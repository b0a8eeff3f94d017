#pragma once

#include <functional>
#include <string>

#include "base/unique_fd.h"
#include "headpond/result.h"

namespace headpond {

// Only one process holds the lock on a path. A record lock (fcntl), because the
// kernel drops it with its process and forked children do not inherit it. It does
// not keep out other threads of this process.
class RecordLock {
 public:
  // Waits for another process; `proceed` is asked every 10 ms, false: cancelled.
  // Errors: those of open(2), cancelled.
  static Result<RecordLock> acquire(std::string path, const std::function<bool()>& proceed);

  RecordLock(RecordLock&&) noexcept = default;
  RecordLock& operator=(RecordLock&&) = delete;
  // Removes the file, then drops the lock.
  ~RecordLock();

 private:
  RecordLock(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

}  // namespace headpond
