#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/thread.h"
#include "base/unique_fd.h"
#include "decode/demo_pictures.h"

namespace headpond {
namespace {

using Bytes = std::span<const std::byte>;

Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// At least `width` digits, so that names sort as their numbers do.
std::string digits(std::uint64_t number, std::size_t width) {
  std::string text = std::to_string(number);
  if (text.size() < width) text.insert(0, width - text.size(), '0');
  return text;
}

class OutputFile {
 public:
  static Result<OutputFile> create(std::string path) {
    UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!fd) return system_error(errno, "open", path);
    return OutputFile(std::move(fd), std::move(path));
  }

  Result<void> write(Bytes bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return system_error(errno, "write", path_);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
  }

  // Some file systems tell of a failed write only here.
  Result<void> close() {
    if (::close(fd_.release()) != 0) return system_error(errno, "close", path_);
    return {};
  }

 private:
  OutputFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  UniqueFd fd_;
  std::string path_;
};

// POSIX.1-1988 ustar; owner and time are left at zero, so that the bytes of a
// shard depend on its pictures alone.
class TarWriter {
 public:
  static Result<TarWriter> create(std::string path) {
    auto file = OutputFile::create(std::move(path));
    if (!file) return std::move(file).error();
    return TarWriter(*std::move(file));
  }

  // `name` has at most 100 bytes, `content` less than 8 GiB.
  Result<void> add(std::string_view name, Bytes content) {
    const auto head = header(name, content.size());
    const std::size_t padding = (kBlock - content.size() % kBlock) % kBlock;
    constexpr std::array<std::byte, kBlock> kZeros{};
    for (const Bytes part : {Bytes(head), content, Bytes(kZeros).first(padding)}) {
      if (auto written = file_.write(part); !written) return written;
    }
    return {};
  }

  Result<void> close() {
    constexpr std::array<std::byte, 2 * kBlock> kEnd{};
    if (auto written = file_.write(kEnd); !written) return written;
    return file_.close();
  }

 private:
  static constexpr std::size_t kBlock = 512;

  explicit TarWriter(OutputFile file) : file_(std::move(file)) {}

  static std::array<std::byte, kBlock> header(std::string_view name, std::size_t size) {
    std::array<std::byte, kBlock> block{};
    const auto put = [&](std::size_t offset, std::string_view text) {
      std::ranges::copy(bytes_of(text), block.begin() + static_cast<std::ptrdiff_t>(offset));
    };
    const auto octal = [](std::size_t value, std::size_t width) {
      std::string text(width, '0');
      for (auto digit = text.rbegin(); value > 0; ++digit, value /= 8) {
        *digit = static_cast<char>('0' + value % 8);
      }
      return text;
    };
    put(0, name);
    put(100, octal(0644, 7));
    put(108, octal(0, 7));
    put(116, octal(0, 7));
    put(124, octal(size, 11));
    put(136, octal(0, 11));
    put(148, "        ");
    put(156, "0");
    put(257, std::string_view("ustar\00000", 8));
    unsigned sum = 0;
    for (const std::byte byte : block) sum += std::to_integer<unsigned>(byte);
    put(148, octal(sum, 6) + '\0');
    return block;
  }

  OutputFile file_;
};

class CorpusWriter {
 public:
  explicit CorpusWriter(const DemoCorpus& corpus) : corpus_(corpus) {}

  Result<void> run() {
    if (auto made = make_folders(); !made) return made;
    std::vector<Thread> threads;
    const StopAtExit stop{*this};  // destroyed first, so that joining does not wait for all shards
    for (int i = 0; i < corpus_.threads; ++i) {
      auto thread = Thread::start({"hp-demo-" + std::to_string(i), 0}, [this] { work(); });
      if (!thread) return std::move(thread).error();
      threads.push_back(*std::move(thread));
    }
    return watch();
  }

 private:
  // Whatever ends run() early, an exception of `progress` too, ends the threads.
  struct StopAtExit {
    CorpusWriter& writer;
    ~StopAtExit() { writer.stopped_ = true; }
  };

  std::string class_folder(std::uint64_t label) const {
    const std::size_t width = std::max<std::size_t>(2, std::to_string(corpus_.classes - 1).size());
    return corpus_.directory + "/folder/class-" + digits(label, width);
  }

  Result<void> make_folders() const {
    std::vector<std::string> folders{corpus_.directory + "/shards"};
    for (std::uint64_t label = 0; label < corpus_.classes; ++label) {
      folders.push_back(class_folder(label));
    }
    for (const auto& folder : folders) {
      std::error_code error;
      std::filesystem::create_directories(folder, error);
      if (error) return system_error(error.value(), "mkdir", folder);
    }
    return {};
  }

  // Runs on each thread: whole shards, so that no file has two writers.
  void work() {
    for (;;) {
      const std::uint64_t shard = next_shard_.fetch_add(1);
      if (shard >= corpus_.shard_count || stopped_) break;
      auto written = write_shard(shard);
      if (written) continue;
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::move(written).error();
      stopped_ = true;
      break;
    }
    const std::lock_guard lock(mutex_);
    ++finished_;
    changed_.notify_one();
  }

  Result<void> write_shard(std::uint64_t shard) {
    auto tar = TarWriter::create(corpus_.directory + "/shards/demo-" + digits(shard, 6) + ".tar");
    if (!tar) return std::move(tar).error();
    for (std::uint64_t i = first_of(shard); i < first_of(shard + 1) && !stopped_; ++i) {
      if (auto written = write_picture(i, *tar); !written) return written;
      const std::lock_guard lock(mutex_);
      ++done_;
      changed_.notify_one();
    }
    return tar->close();
  }

  // The first picture of a shard: shards differ by one picture at most.
  std::uint64_t first_of(std::uint64_t shard) const {
    const std::uint64_t each = corpus_.count / corpus_.shard_count;
    return shard * each + std::min(shard, corpus_.count % corpus_.shard_count);
  }

  Result<void> write_picture(std::uint64_t number, TarWriter& tar) const {
    const auto label = static_cast<std::uint32_t>(number % corpus_.classes);
    const auto picture = make_demo_picture(label, number / corpus_.classes);
    if (!picture) return picture.error();
    const std::string key = digits(number, 6);
    const std::string name = key + ".jpg";

    auto file = OutputFile::create(class_folder(label) + '/' + name);
    if (!file) return std::move(file).error();
    if (auto written = file->write(*picture); !written) return written;
    if (auto closed = file->close(); !closed) return closed;

    if (auto added = tar.add(name, *picture); !added) return added;
    return tar.add(key + ".cls", bytes_of(std::to_string(label)));
  }

  // Runs on the calling thread until all threads have finished.
  Result<void> watch() {
    std::uint64_t told = 0;
    std::unique_lock lock(mutex_);
    const auto all_finished = [&] { return finished_ == corpus_.threads; };
    while (!all_finished() || told != done_) {
      changed_.wait(lock, [&] { return all_finished() || told != done_; });
      if (told == done_) continue;
      told = done_;
      if (!corpus_.progress || stopped_) continue;
      lock.unlock();
      const bool go_on = corpus_.progress(told, corpus_.count);
      lock.lock();
      if (!go_on && !failure_) failure_ = Error(ErrorCode::cancelled, "stopped by its caller");
      if (!go_on) stopped_ = true;
    }
    if (failure_) return *failure_;
    return {};
  }

  const DemoCorpus& corpus_;
  std::atomic<std::uint64_t> next_shard_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t done_ = 0;        // guarded by mutex_, as all below
  int finished_ = 0;              // threads that take no more work
  std::optional<Error> failure_;  // the first
};

Result<void> check(const DemoCorpus& corpus) {
  const auto wrong = [](const char* what) { return Error(ErrorCode::invalid_argument, what); };
  if (corpus.directory.empty()) return wrong("the directory is empty");
  if (corpus.classes == 0) return wrong("a demo corpus has at least 1 class");
  if (corpus.count < corpus.classes) return wrong("a demo corpus has at least 1 picture per class");
  if (corpus.shard_count == 0 || corpus.shard_count > corpus.count) {
    return wrong("a demo corpus has at least 1 shard and 1 picture per shard");
  }
  if (corpus.threads < 1) return wrong("a demo corpus is written by at least 1 thread");
  return {};
}

}  // namespace

Result<void> write_demo_corpus(const DemoCorpus& corpus) {
  auto written = check(corpus);
  if (written) written = CorpusWriter(corpus).run();
  if (!written) return std::move(written).error().in("writing demo pictures");
  return {};
}

}  // namespace headpond
