#include "io/local_root.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "io/text.h"

namespace headpond {

const char* CPath::join(std::string_view root, std::string_view name) {
  const std::size_t slash = name.empty() ? 0 : 1;
  if (root.size() + slash + name.size() + 1 > sizeof(text_)) return nullptr;
  std::memcpy(text_, root.data(), root.size());
  char* end = text_ + root.size();
  if (slash != 0) *end++ = '/';
  if (!name.empty()) std::memcpy(end, name.data(), name.size());
  end += name.size();
  if (end == text_) *end++ = '/';  // the root directory itself
  *end = '\0';
  return text_;
}

std::string LocalRoot::describe(std::string_view name) const {
  std::string text = path;
  if (!name.empty()) text.append("/").append(name);
  return printable(text.empty() ? "/" : text);
}

Error LocalRoot::at(Error error, std::string_view name, const ByteRange& range) const {
  error = std::move(error).at_uri(describe(name));
  return range.size() > 0 ? std::move(error).at_range(range) : std::move(error);
}

Error LocalRoot::failed(int error_number, std::string_view doing, std::string_view name,
                        const ByteRange& range) const {
  // What open() says of a socket, or of a device without a driver.
  if (error_number == ENXIO || error_number == ENODEV) {
    return at(Error(ErrorCode::not_regular, "not a regular file"), name, range);
  }
  return at(system_error(error_number, doing), name, range);
}

ObjectVersion version_of(const struct stat& status) {
  ObjectVersion version;
  version.size = static_cast<std::uint64_t>(status.st_size);
  version.mtime_ns =
      static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec;
  // 0 means unknown; files unpacked reproducibly really have it.
  if (version.mtime_ns == 0) version.mtime_ns = 1;
  version.inode = status.st_ino;
  return version;
}

Error changed_error(const ObjectVersion& expected, const ObjectVersion& found) {
  return Error(ErrorCode::object_changed, "the object changed: expected " + to_string(expected) +
                                              ", found " + to_string(found));
}

Error not_regular_error(mode_t mode) {
  const char* what = S_ISDIR(mode)    ? "a directory"
                     : S_ISFIFO(mode) ? "a FIFO"
                     : S_ISSOCK(mode) ? "a socket"
                     : S_ISCHR(mode)  ? "a character device"
                     : S_ISBLK(mode)  ? "a block device"
                                      : "something else";
  return Error(ErrorCode::not_regular, std::string("not a regular file: ") + what);
}

std::string absolute_path(std::string path) {
  if (path.empty() || path.front() != '/') {
    char* working = getcwd(nullptr, 0);
    if (working != nullptr) {
      path = path.empty() ? std::string(working) : std::string(working) + "/" + path;
      std::free(working);
    }
  }
  while (!path.empty() && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace headpond
