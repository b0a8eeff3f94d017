// Fixed-size records of a warm file, shuffled, by pread into a reused slab.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "measure.h"

using namespace headpond::limits;

int main(int argc, char** argv) {
  Arguments arguments(argc, argv);
  const std::string path = arguments.text("file", "");
  const std::uint64_t record = arguments.number("record", 150'528);
  const std::uint64_t batch = arguments.number("batch", 64);
  const std::uint64_t threads = arguments.number("threads", 1);
  const std::uint64_t epochs = arguments.number("epochs", 4);
  arguments.finish();

  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("open " + path);
  struct stat status {};
  if (fstat(fd, &status) != 0) fail("fstat " + path);
  const std::uint64_t records = static_cast<std::uint64_t>(status.st_size) / record;
  const auto order = shuffled(records, 7);

  std::vector<std::unique_ptr<WarmBuffer>> slabs(threads);
  auto read_all = [&](std::uint64_t thread) {
    std::byte* slab = slabs[thread]->data();
    for (std::uint64_t i = thread; i < records; i += threads) {
      std::byte* out = slab + (i / threads) % batch * record;
      const auto offset = static_cast<off_t>(order[i] * record);
      if (pread(fd, out, record, offset) != static_cast<ssize_t>(record)) fail("pread " + path);
    }
  };
  Usage usage = run_threads(
      threads,
      [&](std::uint64_t thread) {
        slabs[thread] = std::make_unique<WarmBuffer>(batch * record);
        read_all(thread);  // warms the file
      },
      [&](std::uint64_t thread) {
        for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) read_all(thread);
      });
  print_result("records", epochs * records, epochs * records * record, threads, usage);
}
