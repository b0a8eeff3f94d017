#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "headpond/result.h"

namespace headpond {

// Read-only bytes: a mapped file, or memory of their own. Movable; one owner.
class Image {
 public:
  Image() = default;
  explicit Image(std::vector<std::byte> bytes) : own_(std::move(bytes)) {}
  // Errors: not_found; access_denied; not_regular; resource_limit; io_failed.
  static Result<Image> map(const std::string& path);

  Image(Image&& other) noexcept;
  Image& operator=(Image&& other) noexcept;
  ~Image();

  std::span<const std::byte> bytes() const {
    return mapped_.empty() ? std::span<const std::byte>(own_) : mapped_;
  }

 private:
  std::span<const std::byte> mapped_;
  std::vector<std::byte> own_;
};

// Writes `bytes` to the file `temporary` beside `path` and renames it over `path`, so
// that a reader sees the old file or the whole new one; removes it on failure.
// Flush::none: after a crash of the machine the file may be damaged; for what is
// checked when it is opened, and can be made again.
enum class Flush { to_disk, none };
Result<void> publish_file(const std::string& path, const std::string& temporary,
                          std::span<const std::byte> bytes, Flush flush);

}  // namespace headpond
