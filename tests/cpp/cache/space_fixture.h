#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache_folder.h"
#include "cache/eviction.h"
#include "cache/fill_file.h"
#include "cache/space.h"
#include "cache/use_file.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace headpond {

constexpr std::uint64_t kCell = kCellBytes;

// Answers that a test sets; safe to call from any thread, as the real ones are.
class SpaceOps final : public CacheOps {
 public:
  std::atomic<std::uint64_t> free_bytes = ~std::uint64_t{0};  // that: the disk's own
  std::atomic<int> unlink_error = 0;
  std::atomic<int> write_error = 0;
  std::atomic<std::int64_t> step_ns = 0;  // that time moves with each look; 0: real time
  std::atomic<int> unlinks = 0;

  int fstatvfs(int fd, struct statvfs* out) override {
    const int result = CacheOps::fstatvfs(fd, out);
    if (free_bytes == ~std::uint64_t{0}) return result;
    out->f_bavail = free_bytes / kCell;
    out->f_frsize = kCell;
    return result;
  }
  int unlinkat(int dir, const char* name) override {
    ++unlinks;
    return unlink_error != 0 ? unlink_error.load() : CacheOps::unlinkat(dir, name);
  }
  ssize_t pwrite(int fd, const std::byte* bytes, std::size_t size, std::uint64_t offset) override {
    return write_error != 0 ? write_error.load() : CacheOps::pwrite(fd, bytes, size, offset);
  }
  std::int64_t now_ns() override { return step_ns == 0 ? CacheOps::now_ns() : stepped_ += step_ns; }

 private:
  std::atomic<std::int64_t> stepped_ = 0;
};

// What one process has open of a cache directory.
struct Opened {
  explicit Opened(const std::string& path)
      : ops(std::make_shared<SpaceOps>()), folder(*CacheFolder::open(path, ops)) {}
  // With accounts that are counted.
  Opened(const std::string& path, std::uint64_t limit) : Opened(path) {
    space = *Space::open(folder, claims, {limit, 0, {}});
    count();
  }

  // Rescans while the accounts are in doubt.
  void count() {
    UseFiles uses(folder);
    Eviction eviction(folder, *space, uses);
    while (space->wants_rescan()) static_cast<void>(eviction.rescan(nullptr));
  }

  // A file of `bytes` under the block's published name, through the accounts.
  bool publish(const BlockKey& key, std::uint64_t bytes = kCell) {
    auto room = space->reserve(bytes);
    return room && publish(std::move(*room), key);
  }
  bool publish(Reservation room, const BlockKey& key) {
    make_fill(key, room.bytes());
    Publication publication = space->publish(std::move(room), key);
    if (folder->publish(key) != 0) {
      folder->remove_fill(key);
      return false;
    }
    publication.renamed();
    return true;
  }
  void make_fill(const BlockKey& key, std::uint64_t bytes) {
    const CacheFd fd(*ops, folder->open_fill(key, O_RDWR | O_CREAT));
    // Not an assertion: those are for the test's own thread.
    if (!fd || pwrite_all(*ops, fd.get(), std::vector<std::byte>(bytes), 0) != 0)
      throw std::runtime_error("no fill file");
  }
  // Whether this call removed it.
  bool remove(const BlockKey& key, std::uint64_t bytes = kCell) {
    Removal removal = space->remove(key, bytes);
    const auto removed = folder->remove_block(key);
    if (!removed) return false;
    if (*removed == 0) return removal.gone(), false;
    return removal.unlinked(*removed), true;
  }

  std::map<BlockKey, std::uint64_t> listed() const {
    std::map<BlockKey, std::uint64_t> blocks;
    REQUIRE(folder->scan(0, [&](const BlockKey& key, std::uint64_t bytes) {
      blocks[key] = bytes;
      return true;
    }));
    return blocks;
  }
  std::uint64_t block_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [key, bytes] : listed()) sum += bytes;
    return sum;
  }
  std::vector<std::string> fill_names() const {
    std::vector<std::string> names;
    REQUIRE(ops->list(folder->fill(), [&](const char* name) {
      names.emplace_back(name);
      return true;
    }) == 0);
    return names;
  }
  std::uint64_t fill_bytes() const {
    std::uint64_t sum = 0;
    for (const std::string& name : fill_names()) {
      struct stat info = {};
      if (ops->fstatat(folder->fill(), name.c_str(), &info) == 0)
        sum += (static_cast<std::uint64_t>(info.st_size) + kCell - 1) / kCell * kCell;
    }
    return sum;
  }

  std::shared_ptr<SpaceOps> ops;
  std::shared_ptr<CacheFolder> folder;
  FillClaims claims;
  std::unique_ptr<Space> space;
};

// The number-th of a family of keys, in order.
inline BlockKey key_of(std::uint64_t number) { return {{number << 40, number * 0x9E3779B9u}}; }

// Memory that a test shares with its children.
template <class T>
class Shared {
 public:
  Shared() {
    void* page =
        mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::runtime_error("mmap");
    value_ = new (page) T();
  }
  ~Shared() { munmap(value_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T& operator*() const { return *value_; }
  T* operator->() const { return value_; }

 private:
  T* value_;
};

// A forked process that runs `body` up to a word from the test, and may be killed any time.
class Child {
 public:
  explicit Child(const std::function<int(Child&)>& body) {
    if (pipe2(to_child_, O_CLOEXEC) != 0 || pipe2(to_test_, O_CLOEXEC) != 0)
      throw std::runtime_error("pipe2");
    pid_ = fork();
    if (pid_ != 0) return;
    alarm(60);
    _exit(body(*this));
  }
  ~Child() {
    kill();
    for (const int fd : {to_child_[0], to_child_[1], to_test_[0], to_test_[1]}) ::close(fd);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // In the child: "so far"; then waits for go().
  void pause() {
    tell();
    hear(to_child_[0]);
  }
  void tell() { send(to_test_[1]); }
  // In the test.
  void await() { hear(to_test_[0]); }
  void go() { send(to_child_[1]); }
  void kill() {
    signal(SIGKILL);
    static_cast<void>(wait());
  }
  // Stops it where it is; false: it has ended.
  bool stop() {
    int status = 0;
    if (!signal(SIGSTOP)) return false;
    if (waitpid(pid_, &status, WUNTRACED) != pid_ || !WIFSTOPPED(status)) {
      result_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      pid_ = -1;
      return false;
    }
    return true;
  }
  void go_on() { signal(SIGCONT); }
  // Its result, or -1.
  int wait() {
    if (pid_ <= 0) return result_;
    int status = 0;
    const bool ended = waitpid(std::exchange(pid_, -1), &status, 0) > 0;
    return result_ = ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  // The only place that signals: a pid of -1 (not started, or ended) would mean every process of
  // the machine.
  bool signal(int number) { return pid_ > 0 && ::kill(pid_, number) == 0; }
  static void send(int fd) {
    const char word = '.';
    if (write(fd, &word, 1) != 1) _exit(99);
  }
  void hear(int fd) {
    char word;
    while (read(fd, &word, 1) < 0 && errno == EINTR) {
    }
  }
  int to_child_[2];
  int to_test_[2];
  pid_t pid_ = -1;
  int result_ = -1;
};

}  // namespace headpond
