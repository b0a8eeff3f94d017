#include "io/pread_pool.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "base/thread.h"

namespace headpond {
namespace {

// Shared with the threads, so that one that is left to the kernel keeps what it uses.
struct Shared {
  std::shared_ptr<LocalFiles> files;
  std::mutex mutex;
  std::condition_variable work;
  std::condition_variable left;
  std::deque<LocalRead> queue;
  std::size_t idle = 0;
  std::size_t running = 0;  // threads
  bool stopping = false;
};

// The pool whose thread this is: it may drop the last owner of its own pool in a `done`.
thread_local const Shared* own_pool = nullptr;

void run(const std::shared_ptr<Shared>& shared) {
  own_pool = shared.get();
  std::unique_lock lock(shared->mutex);
  for (;;) {
    ++shared->idle;
    shared->work.wait(lock, [&] { return shared->stopping || !shared->queue.empty(); });
    --shared->idle;
    if (shared->queue.empty()) break;
    LocalRead read = std::move(shared->queue.front());
    shared->queue.pop_front();
    lock.unlock();
    auto outcome =
        read.stopped() ? Result<ReadOutcome>(read.cancelled()) : shared->files->read(read);
    read.finish(std::move(outcome), shared->files->counters());
    lock.lock();
  }
  --shared->running;
  shared->left.notify_all();
}

class PreadPool final : public Backend {
 public:
  PreadPool(std::shared_ptr<LocalFiles> files, unsigned threads, std::shared_ptr<LogQueue> log)
      : threads_max_(std::max(threads, 1u)),
        log_(std::move(log)),
        shared_(std::make_shared<Shared>()) {
    shared_->files = std::move(files);
  }

  void submit(std::vector<LocalRead> reads) override {
    std::unique_lock lock(shared_->mutex);
    for (auto& read : reads) shared_->queue.push_back(std::move(read));
    const std::size_t queued = shared_->queue.size();
    while (threads_.size() < threads_max_ && shared_->idle + started_ < queued) {
      if (!start_thread()) break;
    }
    started_ = 0;
    if (threads_.empty()) {
      auto refused = std::exchange(shared_->queue, {});
      lock.unlock();
      for (auto& read : refused) {
        read.finish(
            read.root->at(Error(ErrorCode::resource_limit, "no thread can be started to read"),
                          read.request.object, read.range()),
            shared_->files->counters());
      }
      return;
    }
    lock.unlock();
    if (queued == 1) {
      shared_->work.notify_one();
    } else {
      shared_->work.notify_all();
    }
  }

  void cancel_queued() override {
    std::vector<LocalRead> stopped;
    {
      const std::lock_guard lock(shared_->mutex);
      std::erase_if(shared_->queue, [&](LocalRead& read) {
        if (!read.stopped()) return false;
        stopped.push_back(std::move(read));
        return true;
      });
    }
    for (auto& read : stopped) read.finish(read.cancelled(), shared_->files->counters());
  }

  std::size_t stop(std::chrono::nanoseconds limit) override {
    std::unique_lock lock(shared_->mutex);
    shared_->stopping = true;
    shared_->work.notify_all();
    const std::size_t own = own_pool == shared_.get() ? 1 : 0;
    shared_->left.wait_for(lock, limit, [&] { return shared_->running <= own; });
    const std::size_t stuck = shared_->running - own;
    lock.unlock();
    for (auto& thread : threads_) {
      if (stuck + own > 0) {
        thread.detach();
      } else {
        thread.join();
      }
    }
    threads_.clear();
    return stuck;
  }

 private:
  // With the lock held: `running` counts the thread before it can leave.
  bool start_thread() {
    auto thread = Thread::start({"hp-io-" + std::to_string(threads_.size()), 0},
                                [shared = shared_] { run(shared); });
    if (!thread) {
      if (log_ != nullptr)
        log_->push_once(LogLevel::warning, "pread threads", thread.error().to_string());
      return false;
    }
    threads_.push_back(std::move(*thread));
    ++shared_->running;
    ++started_;
    return true;
  }

  const std::size_t threads_max_;
  const std::shared_ptr<LogQueue> log_;
  const std::shared_ptr<Shared> shared_;
  std::vector<Thread> threads_;  // under the lock of `shared_`
  std::size_t started_ = 0;      // by this submit, not yet idle
};

}  // namespace

std::shared_ptr<Backend> make_pread_pool(std::shared_ptr<LocalFiles> files, unsigned threads,
                                         std::shared_ptr<LogQueue> log) {
  return std::make_shared<PreadPool>(std::move(files), threads, std::move(log));
}

}  // namespace headpond
