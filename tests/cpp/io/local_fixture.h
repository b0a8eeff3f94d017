#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "io/local_io.h"
#include "support/store_conformance.h"
#include "support/temp_dir.h"

namespace headpond {

inline IoOptions with_backend(IoBackend backend) {
  IoOptions options;
  options.backend = backend;
  return options;
}

// Takes a file's pages out of the page cache.
inline void make_cold(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY);
  fsync(fd);
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

// A local store over a directory of its own.
class LocalFixture : public StoreFixture {
 public:
  explicit LocalFixture(IoOptions options, bool cold = false, LocalIoSeams seams = {})
      : log(std::make_shared<LogQueue>()),
        io(make_local_io(options, log, std::move(seams))),
        cold_(cold) {
    Uri root;
    root.path = dir.path();
    opened = io->open(root);
  }

  Store& store() override { return *opened; }
  void put(const std::string& object, const Bytes& bytes) override {
    dir.write(object, bytes);
    // Rewritten within one tick of the file system's clock the time would stay.
    const struct timespec times[2] = {{0, UTIME_OMIT}, {1'700'000'000, ++puts_}};
    utimensat(AT_FDCWD, dir.path(object).c_str(), times, 0);
    if (cold_) make_cold(dir.path(object));
  }

  TempDir dir;
  std::shared_ptr<LogQueue> log;
  std::shared_ptr<LocalIo> io;
  std::shared_ptr<Store> opened;

 private:
  const bool cold_;
  long puts_ = 0;
};

}  // namespace headpond
