#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/thread.h"
#include "headpond/decoder.h"
#include "headpond/result.h"

namespace headpond {

// Something that has work for CPU workers: one prefetcher.
class WorkSource {
 public:
  virtual ~WorkSource() = default;
  // Does one piece of work (some microseconds to some milliseconds); false when
  // there is nothing to do now. Called by several workers at once.
  virtual bool work(Scratch& scratch) = 0;
  // The workers are gone for good.
  virtual void workers_gone() = 0;
};

// The CPU workers of an engine. They take turns over the attached sources and
// sleep when none has work. Safe to call from any thread.
class Scheduler {
 public:
  Scheduler(unsigned threads, int nice) : threads_max_(threads), nice_(nice) {}
  ~Scheduler() { close(); }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Starts the workers, once. Fewer than asked for are fine; none is an error.
  Result<void> start();
  void attach(std::shared_ptr<WorkSource> source);
  // Returns when no worker is inside `source` any more.
  void detach(const WorkSource& source);
  // A source may have work again.
  void wake();
  // Joins the workers. Idempotent.
  void close();
  std::size_t threads() const;

 private:
  struct Entry {
    std::shared_ptr<WorkSource> source;
    unsigned inside = 0;
  };
  void run();
  bool work_once(std::unique_lock<std::mutex>& lock, Scratch& scratch);

  const unsigned threads_max_;
  const int nice_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable left_;
  std::vector<std::shared_ptr<Entry>> entries_;
  std::size_t turn_ = 0;
  std::uint64_t signals_ = 0;  // counts wake-ups, so that none between looking and sleeping is lost
  unsigned sleeping_ = 0;
  bool started_ = false;
  bool closing_ = false;
  std::vector<Thread> workers_;
};

}  // namespace headpond
