#include "io/pread_pool.h"

#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "base/task_pool.h"

namespace headpond {
namespace {

// Shared with the threads, so that one that is left to the kernel keeps what it uses.
struct Shared {
  std::shared_ptr<LocalFiles> files;
  std::mutex mutex;
  std::deque<LocalRead> queue;  // a task of the pool for each, or more

  void read_next() {
    std::unique_lock lock(mutex);
    if (queue.empty()) return;  // it was cancelled
    LocalRead read = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    auto outcome = read.stopped() ? Result<ReadOutcome>(read.cancelled()) : files->read(read);
    read.finish(std::move(outcome), files->counters());
  }
};

class PreadPool final : public Backend {
 public:
  PreadPool(std::shared_ptr<LocalFiles> files, unsigned threads, std::shared_ptr<LogQueue> log)
      : shared_(std::make_shared<Shared>()), pool_("hp-io", threads, [log](const Error& error) {
          if (log != nullptr) log->push_once(LogLevel::warning, "pread threads", error.to_string());
        }) {
    shared_->files = std::move(files);
  }

  void submit(std::vector<LocalRead> reads) override {
    const std::size_t count = reads.size();
    {
      const std::lock_guard lock(shared_->mutex);
      for (auto& read : reads) shared_->queue.push_back(std::move(read));
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!pool_.post([shared = shared_] { shared->read_next(); })) return refuse_queued();
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

  std::size_t stop(std::chrono::nanoseconds limit) override { return pool_.close(limit); }

 private:
  // There is not even one thread, so nobody else takes from the queue.
  void refuse_queued() {
    std::deque<LocalRead> refused;
    {
      const std::lock_guard lock(shared_->mutex);
      refused.swap(shared_->queue);
    }
    for (auto& read : refused) {
      read.finish(
          read.root->at(Error(ErrorCode::resource_limit, "no thread can be started to read"),
                        read.request.object, read.range()),
          shared_->files->counters());
    }
  }

  const std::shared_ptr<Shared> shared_;
  TaskPool pool_;
};

}  // namespace

std::shared_ptr<Backend> make_pread_pool(std::shared_ptr<LocalFiles> files, unsigned threads,
                                         std::shared_ptr<LogQueue> log) {
  return std::make_shared<PreadPool>(std::move(files), threads, std::move(log));
}

}  // namespace headpond
