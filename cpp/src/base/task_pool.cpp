#include "base/task_pool.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "base/thread.h"

namespace headpond {

// Outlives the pool with a thread that is stuck.
struct TaskPool::Shared {
  std::mutex mutex;
  std::condition_variable work;
  std::condition_variable left;
  std::deque<std::function<void()>> queue;
  std::vector<Thread> threads;
  std::size_t idle = 0;
  std::size_t running = 0;  // threads
  bool closed = false;

  void run();
};

namespace {

// Of the pool whose thread this is: a task may drop the last owner of its pool.
thread_local const void* own_pool = nullptr;

}  // namespace

void TaskPool::Shared::run() {
  own_pool = this;
  std::unique_lock lock(mutex);
  for (;;) {
    ++idle;
    work.wait(lock, [&] { return closed || !queue.empty(); });
    --idle;
    if (queue.empty()) break;
    auto task = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it holds may lead back here
    lock.lock();
  }
  --running;
  left.notify_all();
}

TaskPool::TaskPool(std::string name, unsigned threads_max,
                   std::function<void(const Error&)> refused)
    : name_(std::move(name)),
      threads_max_(std::max(threads_max, 1u)),
      refused_(std::move(refused)),
      shared_(std::make_shared<Shared>()) {}

TaskPool::~TaskPool() { close(std::nullopt); }

bool TaskPool::post(std::function<void()> task) {
  Shared& shared = *shared_;
  const std::lock_guard lock(shared.mutex);
  if (shared.closed) return false;
  if (shared.idle <= shared.queue.size() && shared.threads.size() < threads_max_) {
    auto thread = Thread::start({name_ + "-" + std::to_string(shared.threads.size()), 0},
                                [held = shared_] { held->run(); });
    if (thread) {
      shared.threads.push_back(std::move(*thread));
      ++shared.running;
    } else {
      if (refused_) refused_(thread.error());
      if (shared.threads.empty()) return false;
    }
  }
  shared.queue.push_back(std::move(task));
  shared.work.notify_one();
  return true;
}

std::size_t TaskPool::close(std::optional<std::chrono::nanoseconds> limit) {
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  shared.closed = true;
  shared.work.notify_all();
  auto threads = std::exchange(shared.threads, {});
  if (threads.empty()) return 0;  // or an earlier close has left them
  const std::size_t own = own_pool == &shared ? 1 : 0;
  const auto finished = [&] { return shared.running <= own; };
  if (limit) {
    shared.left.wait_for(lock, *limit, finished);
  } else {
    shared.left.wait(lock, finished);
  }
  const std::size_t stuck = shared.running - std::min(shared.running, own);
  lock.unlock();
  for (auto& thread : threads) {
    if (stuck + own > 0) {
      thread.detach();
    } else {
      thread.join();
    }
  }
  return stuck;
}

}  // namespace headpond
