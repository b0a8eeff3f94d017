// Large reads through one ring, O_DIRECT: what the disk gives (fio's job with 1 MiB blocks and a
// depth of 8). --path is a file or a folder, whose files are read one after the other in name
// order; --order random shuffles the blocks. --fixed 1 registers the buffers.
#include <fcntl.h>
#include <liburing.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "measure.h"

using namespace headpond::limits;

namespace {

struct Block {
  int fd;
  std::uint64_t offset;
};

std::vector<Block> list_blocks(const std::string& path, std::uint64_t block) {
  std::vector<std::string> paths;
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.is_regular_file()) paths.push_back(entry.path().string());
    }
  } else {
    paths.push_back(path);
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Block> blocks;
  for (const auto& name : paths) {
    const int fd = open(name.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd < 0) fail("open " + name);
    struct stat status {};
    if (fstat(fd, &status) != 0) fail("fstat " + name);
    for (std::uint64_t at = 0; at < static_cast<std::uint64_t>(status.st_size); at += block) {
      blocks.push_back({fd, at});
    }
  }
  return blocks;
}

void check(int rc, const char* what) {
  if (rc >= 0) return;
  errno = -rc;
  fail(what);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments(argc, argv);
  const std::string path = arguments.text("path", "");
  const std::uint64_t block = arguments.number("block", 1 << 20);
  const auto depth = static_cast<unsigned>(arguments.number("depth", 8));
  const std::string order = arguments.text("order", "sequential");
  const bool fixed = arguments.number("fixed", 0) != 0;
  arguments.finish();

  auto blocks = list_blocks(path, block);
  if (order == "random") {
    std::mt19937_64 random(7);
    std::shuffle(blocks.begin(), blocks.end(), random);
  }
  WarmBuffer buffer(depth * block);
  io_uring ring{};
  check(io_uring_queue_init(depth, &ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN),
        "io_uring_queue_init");
  if (fixed) {
    iovec whole{buffer.data(), buffer.size()};
    check(io_uring_register_buffers(&ring, &whole, 1), "io_uring_register_buffers");
  }
  auto start = [&](const Block& at, unsigned slot) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring);
    std::byte* out = buffer.data() + slot * block;
    const auto bytes = static_cast<unsigned>(block);
    if (fixed) {
      io_uring_prep_read_fixed(sqe, at.fd, out, bytes, at.offset, 0);
    } else {
      io_uring_prep_read(sqe, at.fd, out, bytes, at.offset);
    }
    io_uring_sqe_set_data64(sqe, slot);
  };

  Meter meter;
  std::size_t next = 0;
  std::size_t done = 0;
  std::uint64_t bytes = 0;
  for (; next < blocks.size() && next < depth; ++next) {
    start(blocks[next], static_cast<unsigned>(next));
  }
  while (done < blocks.size()) {
    check(io_uring_submit_and_wait(&ring, 1), "io_uring_submit_and_wait");
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring, &cqe) == 0) {
      check(cqe->res, "read");
      bytes += static_cast<std::uint64_t>(cqe->res);
      ++done;
      const auto slot = static_cast<unsigned>(cqe->user_data);
      io_uring_cqe_seen(&ring, cqe);
      if (next < blocks.size()) start(blocks[next++], slot);
    }
  }
  print_result("ring", done, bytes, 1, meter.stop(), ", \"depth\": " + std::to_string(depth));
  io_uring_queue_exit(&ring);
}
