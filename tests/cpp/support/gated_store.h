#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <tuple>
#include <vector>

#include "support/wrapped_store.h"

namespace headpond {

// Holds every `read` until the test lets it through; `read_now` finds nothing in
// memory until then. So a test forces the order of completions without time.
class GatedStore final : public WrappedStore {
 public:
  using WrappedStore::WrappedStore;

  // Opens the gate for good.
  void release() {
    std::deque<ReadRequest> held;
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
      held.swap(held_);
    }
    pass(held);
  }
  // Lets the `count` oldest held reads through.
  void release(std::size_t count) {
    std::deque<ReadRequest> passing;
    {
      const std::lock_guard lock(mutex_);
      for (; count > 0 && !held_.empty(); --count) {
        passing.push_back(std::move(held_.front()));
        held_.pop_front();
      }
    }
    pass(passing);
  }
  // Lets the held read through that lies furthest behind, past the others.
  void release_last() {
    std::deque<ReadRequest> passing;
    {
      const std::lock_guard lock(mutex_);
      if (held_.empty()) return;
      const auto last = std::max_element(
          held_.rbegin(), held_.rend(), [](const ReadRequest& a, const ReadRequest& b) {
            return std::tie(a.object, a.offset) < std::tie(b.object, b.offset);
          });
      passing.push_back(std::move(*last));
      held_.erase(std::next(last).base());
    }
    pass(passing);
  }
  // Closes it again.
  void hold() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }

  // Returns once at least `count` reads are held.
  void await_held(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return held_.size() >= count; });
  }
  std::size_t held() const {
    const std::lock_guard lock(mutex_);
    return held_.size();
  }
  // All that ever came, held or not.
  std::size_t reads() const {
    const std::lock_guard lock(mutex_);
    return reads_;
  }

  void read(std::span<ReadRequest> requests) override {
    {
      const std::lock_guard lock(mutex_);
      reads_ += requests.size();
      if (closed_) open_ = true;
      if (!open_) {
        for (auto& request : requests) held_.push_back(std::move(request));
        changed_.notify_all();
        return;
      }
    }
    inner().read(requests);
  }

  Result<std::size_t> read_now(std::string_view object, const ObjectVersion& expected,
                               std::span<const Piece> pieces, Wait wait) override {
    {
      const std::lock_guard lock(mutex_);
      if (!open_) return std::size_t{0};
    }
    return inner().read_now(object, expected, pieces, wait);
  }

  void close() override {
    std::deque<ReadRequest> held;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      held.swap(held_);
    }
    for (auto& request : held) {
      const auto done = std::move(request.done);
      done(Error(ErrorCode::cancelled, "the gated store was closed").at_uri(request.object));
    }
    inner().close();
  }

 private:
  void pass(std::deque<ReadRequest>& requests) {
    std::vector<ReadRequest> batch;
    for (auto& request : requests) batch.push_back(std::move(request));
    if (!batch.empty()) inner().read(batch);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ReadRequest> held_;
  std::size_t reads_ = 0;
  bool open_ = false;
  bool closed_ = false;
};

}  // namespace headpond
