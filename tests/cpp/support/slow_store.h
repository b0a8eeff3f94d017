#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "headpond/clock.h"
#include "support/wrapped_store.h"

namespace headpond {

// Passes every `read` on after a delay on `clock`, in order; `read_now` finds
// nothing in memory.
class SlowStore final : public WrappedStore {
 public:
  SlowStore(std::shared_ptr<Store> inner, std::shared_ptr<Clock> clock, Clock::Duration delay)
      : WrappedStore(std::move(inner)),
        clock_(std::move(clock)),
        delay_(delay),
        thread_([this] { run(); }) {}
  ~SlowStore() override { close(); }

  void read(std::span<ReadRequest> requests) override {
    std::unique_lock lock(mutex_);
    if (closed_) {
      lock.unlock();
      return inner().read(requests);
    }
    for (auto& request : requests) waiting_.push_back({clock_->now() + delay_, std::move(request)});
    changed_.notify_all();
  }

  Result<std::size_t> read_now(std::string_view, const ObjectVersion&, std::span<const Piece>,
                               Wait) override {
    return std::size_t{0};
  }

  void close() override {
    std::deque<Waiting> waiting;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      waiting.swap(waiting_);
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
    for (auto& each : waiting) {
      const auto done = std::move(each.request.done);
      done(Error(ErrorCode::cancelled, "the slow store was closed").at_uri(each.request.object));
    }
    inner().close();
  }

 private:
  struct Waiting {
    Clock::Time due;
    ReadRequest request;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (!closed_) {
      if (waiting_.empty()) {
        changed_.wait(lock);
      } else if (clock_->now() < waiting_.front().due) {
        clock_->wait_until(changed_, lock, waiting_.front().due);
      } else {
        ReadRequest request = std::move(waiting_.front().request);
        waiting_.pop_front();
        lock.unlock();
        inner().read(std::span(&request, 1));
        lock.lock();
      }
    }
  }

  const std::shared_ptr<Clock> clock_;
  const Clock::Duration delay_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace headpond
