// Small files, shuffled, read whole. --how
//   pread   descriptors opened before the clock starts; one pread a file
//   open    open, pread, close by --threads threads
//   ring    linked open, read, close on direct descriptors, --depth chains in flight, one thread
// --slots N: the buffer holds N files; 1 stays in the core's cache, a batch's worth does not.
// --warm 1 reads everything once before the clock starts.
#include <fcntl.h>
#include <liburing.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "measure.h"

using namespace headpond::limits;

namespace {

struct File {
  std::string path;
  std::uint64_t size;
  int fd = -1;
};

std::vector<File> list_files(const std::string& folder, bool open_them) {
  std::vector<File> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files.push_back({entry.path().string(), entry.file_size()});
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.path < b.path; });
  std::vector<File> mixed;
  for (std::uint32_t i : shuffled(files.size(), 7)) mixed.push_back(files[i]);
  if (open_them) {
    for (auto& file : mixed) {
      file.fd = open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
      if (file.fd < 0) fail("open " + file.path);
    }
  }
  return mixed;
}

void read_file(const File& file, std::byte* out) {
  const int fd = file.fd >= 0 ? file.fd : open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("open " + file.path);
  if (pread(fd, out, file.size, 0) != static_cast<ssize_t>(file.size)) fail("pread " + file.path);
  if (fd != file.fd) close(fd);
}

// Chains of open, read and close; a chain's direct descriptor and buffer are its slot's.
class Ring {
 public:
  Ring(unsigned depth, std::uint64_t slot_bytes)
      : depth_(depth), slot_bytes_(slot_bytes), buffer_(depth * slot_bytes) {
    const unsigned flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    int rc = io_uring_queue_init(depth * 4, &ring_, flags);
    if (rc == 0) rc = io_uring_register_files_sparse(&ring_, depth);
    if (rc == 0) return;
    errno = -rc;
    fail("io_uring");
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() { io_uring_queue_exit(&ring_); }

  void read_all(const std::vector<File>& files) {
    std::size_t next = 0;
    std::size_t done = 0;
    for (; next < files.size() && next < depth_; ++next) {
      start(files[next], static_cast<unsigned>(next));
    }
    while (done < files.size()) {
      io_uring_submit_and_wait(&ring_, 1);
      io_uring_cqe* cqe = nullptr;
      unsigned head = 0;
      unsigned seen = 0;
      io_uring_for_each_cqe(&ring_, head, cqe) {
        ++seen;
        if (cqe->res < 0) {
          errno = -cqe->res;
          fail("ring operation");
        }
        if ((cqe->user_data & 1) == 0) continue;  // not the end of a chain
        ++done;
        free_.push_back(static_cast<unsigned>(cqe->user_data >> 1));
      }
      io_uring_cq_advance(&ring_, seen);
      while (!free_.empty() && next < files.size()) {
        start(files[next++], free_.back());
        free_.pop_back();
      }
    }
    free_.clear();
  }

 private:
  void start(const File& file, unsigned slot) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_openat_direct(sqe, AT_FDCWD, file.path.c_str(), O_RDONLY, 0, slot);
    sqe->flags |= IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS;
    io_uring_sqe_set_data64(sqe, 0);
    sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_read(sqe, static_cast<int>(slot), buffer_.data() + slot * slot_bytes_,
                       static_cast<unsigned>(file.size), 0);
    sqe->flags |= IOSQE_FIXED_FILE | IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS;
    io_uring_sqe_set_data64(sqe, 0);
    sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_close_direct(sqe, slot);
    io_uring_sqe_set_data64(sqe, (std::uint64_t{slot} << 1) | 1);
  }

  unsigned depth_;
  std::uint64_t slot_bytes_;
  WarmBuffer buffer_;
  io_uring ring_{};
  std::vector<unsigned> free_;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments(argc, argv);
  const std::string folder = arguments.text("folder", "");
  const std::string how = arguments.text("how", "open");
  const std::uint64_t threads = how == "ring" ? 1 : arguments.number("threads", 1);
  const auto depth = static_cast<unsigned>(arguments.number("depth", 128));
  const std::uint64_t slots = arguments.number("slots", 1);
  const std::uint64_t epochs = arguments.number("epochs", 1);
  const bool warm = arguments.number("warm", 1) != 0;
  arguments.finish();

  const auto files = list_files(folder, how == "pread");
  std::uint64_t largest = 1;
  std::uint64_t bytes = 0;
  for (const auto& file : files) {
    largest = std::max(largest, file.size);
    bytes += file.size;
  }
  const std::uint64_t slot_bytes = (largest + 4095) / 4096 * 4096;

  std::vector<std::unique_ptr<WarmBuffer>> buffers(threads);
  std::unique_ptr<Ring> ring;
  auto read_all = [&](std::uint64_t thread) {
    if (ring) return ring->read_all(files);
    for (std::size_t i = thread; i < files.size(); i += threads) {
      read_file(files[i], buffers[thread]->data() + i / threads % slots * slot_bytes);
    }
  };
  Usage usage = run_threads(
      threads,
      [&](std::uint64_t thread) {
        if (how == "ring") ring = std::make_unique<Ring>(depth, slot_bytes);
        buffers[thread] = std::make_unique<WarmBuffer>(slots * slot_bytes);
        if (warm) read_all(thread);
      },
      [&](std::uint64_t thread) {
        for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) read_all(thread);
        if (ring) ring.reset();
      });
  const std::string shape = how == "ring" ? ", \"depth\": " + std::to_string(depth) : "";
  print_result("files-" + how, epochs * files.size(), epochs * bytes, threads, usage, shape);
}
