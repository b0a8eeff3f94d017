#include "format/image.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/unique_fd.h"

namespace headpond {

Result<Image> Image::map(const std::string& path) {
  // O_NONBLOCK: a FIFO in the place of a file must not hang.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return system_error(errno, "opening", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_error(errno, "reading the size of", path);
  if (!S_ISREG(info.st_mode)) return Error(ErrorCode::not_regular, path + " is not a regular file");
  Image image;
  if (info.st_size == 0) return image;
  const auto size = static_cast<std::size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return system_error(errno, "mapping", path);
  image.mapped_ = {static_cast<const std::byte*>(data), size};
  return image;
}

Image::Image(Image&& other) noexcept
    : mapped_(std::exchange(other.mapped_, {})), own_(std::move(other.own_)) {}

Image& Image::operator=(Image&& other) noexcept {
  std::swap(mapped_, other.mapped_);
  std::swap(own_, other.own_);
  return *this;
}

Image::~Image() {
  if (!mapped_.empty()) ::munmap(const_cast<std::byte*>(mapped_.data()), mapped_.size());
}

namespace {

Result<void> write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error(errno, "writing", path);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> write_file(const std::string& path, std::span<const std::byte> bytes, Flush flush) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) return system_error(errno, "creating", path);
  if (auto written = write_all(fd.get(), bytes, path); !written) return written;
  if (flush == Flush::to_disk && ::fsync(fd.get()) != 0)
    return system_error(errno, "flushing", path);
  return {};
}

}  // namespace

Result<void> publish_file(const std::string& path, const std::string& temporary,
                          std::span<const std::byte> bytes, Flush flush) {
  auto written = write_file(temporary, bytes, flush);
  if (written && std::rename(temporary.c_str(), path.c_str()) != 0) {
    written = system_error(errno, "renaming to", path);
  }
  if (!written) ::unlink(temporary.c_str());
  return written;
}

}  // namespace headpond
