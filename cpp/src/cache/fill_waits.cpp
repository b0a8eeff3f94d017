#include "cache/fill_waits.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "base/unique_fd.h"
#include "cache/cache_folder.h"
#include "headpond/clock.h"

namespace headpond {
namespace {

constexpr int kLookEveryMs = 10;

}  // namespace

struct FillWaits::Shared {
  std::function<void(const BlockKey&)> look;
  std::string watched;  // the folder of fills
  std::mutex mutex;
  std::condition_variable changed;
  std::unordered_set<BlockKey> keys;
  bool closed = false;
  UniqueFd inotify;
  Thread thread;

  void run();
  void read_events();
  void look_at(const std::vector<BlockKey>& keys) {
    for (const BlockKey& key : keys) look(key);
  }
};

// Names of files that left the folder: the keys among them that somebody waits for.
void FillWaits::Shared::read_events() {
  alignas(inotify_event) std::array<char, 16 << 10> buffer;
  std::vector<BlockKey> left;
  for (;;) {
    const ssize_t got = ::read(inotify.get(), buffer.data(), buffer.size());
    if (got <= 0) break;
    const std::lock_guard lock(mutex);
    for (const char* at = buffer.data(); at < buffer.data() + got;) {
      inotify_event event;
      std::memcpy(&event, at, sizeof event);
      const char* name = at + sizeof event;
      at = name + event.len;
      if ((event.mask & IN_Q_OVERFLOW) != 0) {
        left.assign(keys.begin(), keys.end());
        continue;
      }
      if (event.len == 0) continue;
      const auto key = parse_block_name(std::string_view(name, strnlen(name, event.len)));
      if (key && keys.count(*key) > 0) left.push_back(*key);
    }
  }
  look_at(left);
}

void FillWaits::Shared::run() {
  const SystemClock clock;
  Clock::Time look_again = clock.now();
  std::unique_lock lock(mutex);
  while (!closed) {
    if (keys.empty()) {
      changed.wait(lock);
      continue;
    }
    lock.unlock();
    pollfd waiting{inotify.get(), POLLIN, 0};
    if (::poll(&waiting, inotify ? 1 : 0, kLookEveryMs) > 0) read_events();
    lock.lock();
    if (clock.now() < look_again) continue;
    look_again = clock.now() + std::chrono::milliseconds(kLookEveryMs);
    const std::vector<BlockKey> all(keys.begin(), keys.end());
    lock.unlock();
    look_at(all);
    lock.lock();
  }
}

FillWaits::FillWaits(int fill_folder, std::function<void(const BlockKey&)> look)
    : shared_(std::make_shared<Shared>()) {
  shared_->look = std::move(look);
  shared_->watched = "/proc/self/fd/" + std::to_string(fill_folder);
}

FillWaits::~FillWaits() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->closed = true;
    shared_->changed.notify_all();
  }
  shared_->thread = Thread();
}

bool FillWaits::add(const BlockKey& key) {
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->thread.joinable()) {
    shared_->inotify = UniqueFd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    // Without it the looks every 10 ms remain.
    if (shared_->inotify && ::inotify_add_watch(shared_->inotify.get(), shared_->watched.c_str(),
                                                IN_MOVED_FROM | IN_DELETE) < 0)
      shared_->inotify.reset();
    auto thread = Thread::start({"hp-cache-wait", 0}, [shared = shared_.get()] { shared->run(); });
    if (!thread) return false;
    shared_->thread = std::move(*thread);
  }
  shared_->keys.insert(key);
  shared_->changed.notify_all();
  return true;
}

void FillWaits::remove(const BlockKey& key) {
  const std::lock_guard lock(shared_->mutex);
  shared_->keys.erase(key);
}

}  // namespace headpond
