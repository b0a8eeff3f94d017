// Batches of 8 windows of 2,049 uint16 tokens, shuffled, widened to int64 from a mapped warm file.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "measure.h"

using namespace headpond::limits;

int main(int argc, char** argv) {
  Arguments arguments(argc, argv);
  const std::string path = arguments.text("file", "");
  const std::uint64_t window = arguments.number("window", 2049);
  const std::uint64_t stride = arguments.number("stride", 2048);
  const std::uint64_t batch = arguments.number("batch", 8);
  const std::uint64_t epochs = arguments.number("epochs", 1);
  arguments.finish();

  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("open " + path);
  struct stat status {};
  if (fstat(fd, &status) != 0) fail("fstat " + path);
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  void* at = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (at == MAP_FAILED) fail("mmap " + path);
  const auto* tokens = static_cast<const std::uint16_t*>(at);
  const std::uint64_t windows = (bytes / sizeof(std::uint16_t) - window) / stride + 1;
  const auto order = shuffled(windows, 7);
  WarmBuffer out(batch * window * sizeof(std::int64_t));
  auto* to = reinterpret_cast<std::int64_t*>(out.data());

  Meter meter;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    for (std::uint64_t i = 0; i < windows; ++i) {
      const std::uint16_t* from = tokens + order[i] * stride;
      std::int64_t* row = to + i % batch * window;
      for (std::uint64_t t = 0; t < window; ++t) row[t] = from[t];
      keep(row);
    }
  }
  const std::uint64_t done = epochs * windows;
  print_result("tokens", done, done * window * sizeof(std::int64_t), 1, meter.stop());
}
