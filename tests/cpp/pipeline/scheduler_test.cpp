#include "pipeline/scheduler.h"

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "support/catch.h"

using namespace headpond;

namespace {

// A source with a given number of pieces.
class Countdown final : public WorkSource {
 public:
  explicit Countdown(int pieces) : left_(pieces) {}
  bool work(Scratch&) override {
    const std::lock_guard lock(mutex_);
    if (left_ == 0) return false;
    if (--left_ == 0) done_.notify_all();
    return true;
  }
  void workers_gone() override { gone = true; }
  void add(int pieces) {
    const std::lock_guard lock(mutex_);
    left_ += pieces;
  }
  void await_done() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return left_ == 0; });
  }
  std::atomic<bool> gone{false};

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  int left_;
};

}  // namespace

TEST_CASE("Scheduler: every source's work is done, also what comes after sleeping") {
  Scheduler scheduler(2, 0);
  REQUIRE(scheduler.start());
  auto a = std::make_shared<Countdown>(100);
  auto b = std::make_shared<Countdown>(1);
  scheduler.attach(a);
  scheduler.attach(b);
  a->await_done();
  b->await_done();
  for (int i = 0; i < 1000; ++i) {
    b->add(1);
    scheduler.wake();
    b->await_done();
  }
  scheduler.detach(*a);
  scheduler.close();
  CHECK(b->gone);
  CHECK(!a->gone);
}

TEST_CASE("Scheduler: starting twice keeps one set of workers, starting after close is refused") {
  Scheduler scheduler(3, 0);
  REQUIRE(scheduler.start());
  REQUIRE(scheduler.start());
  CHECK(scheduler.threads() == 3);
  scheduler.close();
  scheduler.close();
  const auto again = scheduler.start();
  REQUIRE(!again);
  CHECK(again.error().code() == ErrorCode::closed);
}

TEST_CASE("Scheduler: detach waits until no worker is inside") {
  struct Blocking final : WorkSource {
    bool work(Scratch&) override {
      std::unique_lock lock(mutex);
      inside = true;
      changed.notify_all();
      changed.wait(lock, [&] { return let_go; });
      left = true;
      return false;
    }
    void workers_gone() override {}
    std::mutex mutex;
    std::condition_variable changed;
    bool inside = false, let_go = false;
    std::atomic<bool> left{false};
  };
  Scheduler scheduler(1, 0);
  REQUIRE(scheduler.start());
  auto source = std::make_shared<Blocking>();
  scheduler.attach(source);
  {
    std::unique_lock lock(source->mutex);
    source->changed.wait(lock, [&] { return source->inside; });
  }
  auto releaser = Thread::start({.name = "releaser"}, [&] {
    const std::lock_guard lock(source->mutex);
    source->let_go = true;
    source->changed.notify_all();
  });
  REQUIRE(releaser);
  scheduler.detach(*source);
  CHECK(source->left);
}
