#include "io/ring_reactor.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "base/thread.h"
#include "io/ring.h"
#include "io/ring_reads.h"

namespace headpond {
namespace {

constexpr std::uint64_t kWakeToken = 5;  // RingReads uses 0 to 3 in the low bits
constexpr std::uint64_t kCancelToken = 6;

struct Batch {
  std::vector<LocalRead> reads;
  Batch* next = nullptr;
};

// Shared with the thread, so that one that is left to the kernel keeps what it uses.
struct Shared {
  ~Shared() { take_inbox(nullptr); }

  // Calls `each` with the reads that came, in order; null: lets them go.
  template <class Each>
  void take_inbox(Each each) {
    Batch* newest = inbox.exchange(nullptr);
    Batch* oldest = nullptr;
    while (newest != nullptr) {
      Batch* next = std::exchange(newest->next, oldest);
      oldest = std::exchange(newest, next);
    }
    while (oldest != nullptr) {
      const std::unique_ptr<Batch> batch(std::exchange(oldest, oldest->next));
      if constexpr (!std::is_same_v<Each, std::nullptr_t>) {
        for (auto& read : batch->reads) each(std::move(read));
      }
    }
  }

  // A sleeping thread has said so before it looked at the inbox for the last time,
  // and whoever sends looks after it sent (both sequentially consistent): one of
  // them sees the other.
  void wake() {
    if (!sleeping.exchange(false)) return;
    const std::uint64_t one = 1;
    static_cast<void>(!::write(wake_fd.get(), &one, sizeof(one)));
  }

  std::shared_ptr<LocalFiles> files;
  std::shared_ptr<Backend> helpers;
  std::shared_ptr<LogQueue> log;
  unsigned depth = 0;

  std::atomic<Batch*> inbox = nullptr;
  std::atomic<bool> sleeping = false;
  std::atomic<bool> stopping = false;
  std::atomic<bool> sweep = false;  // some waiting reads are stopped
  std::atomic<bool> fixed_buffers = false;
  UniqueFd wake_fd;
  std::uint64_t wake_count = 0;  // where the ring reads the eventfd to

  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Result<void>> started;
  bool running = false;
};

thread_local const Shared* own_reactor = nullptr;

// Shows that the ring's reads work at all: a filter may allow the ring and refuse them.
Result<void> check_reads(Ring& ring, int wake_fd, std::uint64_t& count) {
  const std::uint64_t one = 1;
  if (::write(wake_fd, &one, sizeof(one)) != sizeof(one)) return system_error(errno, "eventfd");
  ring.read(kWakeToken, wake_fd, std::as_writable_bytes(std::span(&count, 1)), 0);
  Completion completion;
  for (int tries = 0; tries < 100; ++tries) {
    ring.enter(true);
    if (ring.completions(std::span(&completion, 1)) == 0) continue;
    if (completion.result == sizeof(count)) return {};
    return Error(ErrorCode::unsupported,
                 system_error(-completion.result, "io_uring read").message());
  }
  return Error(ErrorCode::unsupported, "io_uring completes nothing");
}

class Reactor {
 public:
  Reactor(std::shared_ptr<Shared> shared, Ring& ring)
      : shared_(std::move(shared)),
        ring_(ring),
        reads_(shared_->files, ring, std::min(shared_->depth, ring.reads_max()), shared_->log,
               [helpers = shared_->helpers](LocalRead read) {
                 std::vector<LocalRead> one;
                 one.push_back(std::move(read));
                 helpers->submit(std::move(one));
               }) {}

  void run() {
    arm_wake();
    for (;;) {
      shared_->take_inbox([this](LocalRead read) { reads_.add(std::move(read)); });
      if (shared_->sweep.exchange(false)) reads_.drop_stopped();
      reads_.pump();
      const bool fixed = reads_.fixed_buffers();
      if (shared_->fixed_buffers.load(std::memory_order_relaxed) != fixed)
        shared_->fixed_buffers = fixed;
      if (shared_->stopping) {
        if (reads_.idle() && shared_->inbox.load() == nullptr) return;
        cancel_once();
      }
      sleep();
      reap();
    }
  }

 private:
  void arm_wake() {
    ring_.read(kWakeToken, shared_->wake_fd.get(),
               std::as_writable_bytes(std::span(&shared_->wake_count, 1)), 0);
  }

  void cancel_once() {
    if (std::exchange(cancelled_, true)) return;
    reads_.drop_stopped();
    ring_.cancel_all(kCancelToken);
  }

  void sleep() {
    shared_->sleeping = true;
    const bool news = shared_->inbox.load() != nullptr || shared_->sweep.load() ||
                      (shared_->stopping.load() && (!cancelled_ || reads_.idle()));
    ring_.enter(!news);
    shared_->sleeping = false;
  }

  void reap() {
    std::array<Completion, 128> completions;
    for (;;) {
      const std::size_t count = ring_.completions(completions);
      for (std::size_t i = 0; i < count; ++i) {
        if (completions[i].token == kWakeToken) {
          arm_wake();
        } else if (completions[i].token != kCancelToken) {
          reads_.complete(completions[i]);
        }
      }
      if (count < completions.size()) return;
    }
  }

  const std::shared_ptr<Shared> shared_;
  Ring& ring_;
  RingReads reads_;
  bool cancelled_ = false;
};

void run_thread(const std::shared_ptr<Shared>& shared) {
  own_reactor = shared.get();
  // Made here: with SINGLE_ISSUER the ring belongs to the thread that made it.
  auto ring = Ring::make(shared->files->ops(), shared->files->counters(), shared->depth);
  Result<void> started;
  if (!ring) {
    started = std::move(ring).error();
  } else {
    started = check_reads(**ring, shared->wake_fd.get(), shared->wake_count);
  }
  const bool good = started.has_value();
  {
    const std::lock_guard lock(shared->mutex);
    shared->started = std::move(started);
    shared->changed.notify_all();
  }
  if (good) Reactor(shared, **ring).run();
  if (ring) ring->reset();
  const std::lock_guard lock(shared->mutex);
  shared->running = false;
  shared->changed.notify_all();
}

class RingReactor final : public Backend {
 public:
  RingReactor(std::shared_ptr<Shared> shared, Thread thread)
      : shared_(std::move(shared)), thread_(std::move(thread)) {}

  void submit(std::vector<LocalRead> reads) override {
    auto batch = std::make_unique<Batch>();
    batch->reads = std::move(reads);
    batch->next = shared_->inbox.load();
    while (!shared_->inbox.compare_exchange_weak(batch->next, batch.get())) {
    }
    static_cast<void>(batch.release());
    shared_->wake();
  }

  void cancel_queued() override {
    shared_->sweep = true;
    shared_->wake();
    shared_->helpers->cancel_queued();
  }

  std::size_t stop(std::chrono::nanoseconds limit) override {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    shared_->stopping = true;
    shared_->wake();
    std::size_t stuck = 0;
    if (own_reactor == shared_.get()) {
      thread_.detach();  // the last owner let go in a `done`
    } else if (thread_.joinable()) {
      std::unique_lock lock(shared_->mutex);
      shared_->changed.wait_until(lock, deadline, [&] { return !shared_->running; });
      stuck = shared_->running ? 1 : 0;
      lock.unlock();
      if (stuck > 0) {
        thread_.detach();
      } else {
        thread_.join();
      }
    }
    const auto left = std::max<std::chrono::nanoseconds>(
        deadline - std::chrono::steady_clock::now(), std::chrono::milliseconds(1));
    return stuck + shared_->helpers->stop(left);
  }

  bool fixed_buffers() const override { return shared_->fixed_buffers; }

 private:
  const std::shared_ptr<Shared> shared_;
  Thread thread_;
};

}  // namespace

Result<std::shared_ptr<Backend>> make_ring_reactor(std::shared_ptr<LocalFiles> files,
                                                   std::shared_ptr<Backend> helpers,
                                                   const IoOptions& options,
                                                   std::shared_ptr<LogQueue> log) {
  auto shared = std::make_shared<Shared>();
  shared->files = std::move(files);
  shared->helpers = std::move(helpers);
  shared->log = std::move(log);
  shared->depth = std::clamp(options.depth, 1u, 1024u);
  shared->wake_fd = UniqueFd(eventfd(0, EFD_CLOEXEC));
  if (!shared->wake_fd) return system_error(errno, "eventfd");
  shared->running = true;
  auto thread = Thread::start({"hp-io", 0}, [shared] { run_thread(shared); });
  if (!thread) return std::move(thread).error();
  {
    std::unique_lock lock(shared->mutex);
    shared->changed.wait(lock, [&] { return shared->started.has_value(); });
    if (!*shared->started) return std::move(*shared->started).error();  // joins
  }
  return std::shared_ptr<Backend>(
      std::make_shared<RingReactor>(std::move(shared), std::move(*thread)));
}

Result<void> probe_ring(LocalFiles& files) {
  auto ring = Ring::make(files.ops(), files.counters(), 1);
  if (!ring) return std::move(ring).error();
  return {};
}

}  // namespace headpond
