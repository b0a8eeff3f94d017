#pragma once

#include <limits.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "headpond/store.h"
#include "io/in_flight.h"

namespace headpond {

// A path for system calls, built on the stack.
class CPath {
 public:
  // The path of `name` below `root`; null when it does not fit in PATH_MAX.
  const char* join(std::string_view root, std::string_view name);

 private:
  char text_[PATH_MAX];
};

// The directory of one local store, and the requests that are on their way below it.
struct LocalRoot {
  LocalRoot(std::uint32_t id, std::string path) : id(id), path(std::move(path)) {}

  // "path/name" for messages, unprintable bytes escaped.
  std::string describe(std::string_view name) const;
  // `error` with the place added.
  Error at(Error error, std::string_view name, const ByteRange& range) const;
  // The error of a system call on an object.
  Error failed(int error_number, std::string_view doing, std::string_view name,
               const ByteRange& range) const;

  const std::uint32_t id;  // unique within its LocalIo
  const std::string path;  // absolute, without a slash at the end
  std::atomic<bool> closing = false;
  InFlight in_flight;
};

ObjectVersion version_of(const struct stat& status);

// "the object changed: expected ..., found ..."
Error changed_error(const ObjectVersion& expected, const ObjectVersion& found);
// What stands there instead of a file.
Error not_regular_error(mode_t mode);

// Absolute, so that a later chdir() changes nothing; "" is the working directory.
std::string absolute_path(std::string path);

}  // namespace headpond
