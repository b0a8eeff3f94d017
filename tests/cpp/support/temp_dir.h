#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace headpond {

// A directory of one test, removed with all it holds. Below $TMPDIR, else /var/tmp:
// a real disk, where files can be made cold and O_DIRECT works.
class TempDir {
 public:
  TempDir() : TempDir(base()) {}
  // In memory where the machine has /dev/shm: for tests that make thousands of files.
  static TempDir in_memory() {
    return TempDir(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : base());
  }
  explicit TempDir(const std::string& base) {
    std::string pattern = base + "/headpond-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string path(std::string_view name) const { return path_ + "/" + std::string(name); }

  // Writes a file, and the folders above it.
  std::string write(std::string_view name, std::span<const std::byte> bytes) const {
    const std::string file = path(name);
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    if (!out.flush()) throw std::runtime_error("write " + file);
    return file;
  }
  std::string write(std::string_view name, std::string_view text) const {
    return write(name, std::as_bytes(std::span(text)));
  }
  std::string read(std::string_view name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

 private:
  static std::string base() {
    const char* chosen = std::getenv("TMPDIR");
    return chosen != nullptr ? chosen : "/var/tmp";
  }
  std::string path_;
};

}  // namespace headpond
