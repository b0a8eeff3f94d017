#include "pipeline/scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

namespace headpond {
namespace {
// Pieces of one source in a row, so that the lock below is taken seldom.
constexpr int kPiecesInARow = 16;
}  // namespace

Result<void> Scheduler::start() {
  const std::lock_guard lock(mutex_);
  if (closing_) return Error(ErrorCode::closed, "the engine is closed");
  if (started_) return {};
  for (unsigned i = 0; i < threads_max_; ++i) {
    auto thread =
        Thread::start({.name = "hp-cpu-" + std::to_string(i), .nice = nice_}, [this] { run(); });
    if (!thread && workers_.empty())
      return std::move(thread).error().in("starting the CPU workers");
    if (!thread) break;
    workers_.push_back(*std::move(thread));
  }
  started_ = true;
  return {};
}

void Scheduler::attach(std::shared_ptr<WorkSource> source) {
  std::unique_lock lock(mutex_);
  if (closing_) {  // close() has told those that it saw
    lock.unlock();
    return source->workers_gone();
  }
  entries_.push_back(std::make_shared<Entry>(Entry{std::move(source)}));
  ++signals_;
  lock.unlock();
  wake_.notify_all();
}

void Scheduler::detach(const WorkSource& source) {
  std::unique_lock lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) {
    return entry->source.get() == &source;
  });
  if (found == entries_.end()) return;
  const auto entry = *found;
  entries_.erase(found);
  ++signals_;  // a worker in the middle of its turn may have skipped the one behind it
  left_.wait(lock, [&] { return entry->inside == 0; });
}

void Scheduler::wake() {
  bool sleeping = false;
  {
    const std::lock_guard lock(mutex_);
    ++signals_;
    sleeping = sleeping_ > 0;
  }
  // One is enough: a worker that finds more than it can do wakes the next.
  if (sleeping) wake_.notify_one();
}

void Scheduler::close() {
  std::vector<Thread> workers;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    workers.swap(workers_);
  }
  wake_.notify_all();
  for (auto& worker : workers) worker.join();
  std::vector<std::shared_ptr<Entry>> entries;
  {
    const std::lock_guard lock(mutex_);
    entries = entries_;
  }
  for (const auto& entry : entries) entry->source->workers_gone();
}

std::size_t Scheduler::threads() const {
  const std::lock_guard lock(mutex_);
  return workers_.size();
}

void Scheduler::run() {
  Scratch scratch;
  std::unique_lock lock(mutex_);
  while (!closing_) {
    const auto seen = signals_;
    if (work_once(lock, scratch) || closing_ || signals_ != seen) continue;
    ++sleeping_;
    wake_.wait(lock);
    --sleeping_;
  }
}

// One turn over the sources, beginning behind the one served last.
bool Scheduler::work_once(std::unique_lock<std::mutex>& lock, Scratch& scratch) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::size_t at = (turn_ + i) % entries_.size();
    const auto entry = entries_[at];
    ++entry->inside;
    lock.unlock();
    bool worked = false;
    for (int piece = 0; piece < kPiecesInARow && entry->source->work(scratch); ++piece)
      worked = true;
    lock.lock();
    --entry->inside;
    left_.notify_all();
    if (closing_) return true;
    if (worked) {
      turn_ = at + 1;
      return true;
    }
  }
  return false;
}

}  // namespace headpond
