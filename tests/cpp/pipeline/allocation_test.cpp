// Memory that is refused once, at every place where the engine's threads ask for some.
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>
#include <thread>

#include "shard_fixtures.h"

namespace {

std::atomic<std::int64_t> allocations_left{-1};  // that succeed before one fails; below 0: all do
thread_local bool counts = true;                 // are this thread's allocations counted?

void* allocate(std::size_t bytes) {
  if (counts && allocations_left.load(std::memory_order_relaxed) >= 0 &&
      allocations_left.fetch_sub(1) == 0)
    throw std::bad_alloc();
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace headpond {
namespace {

// Nothing is in memory; reads complete on a thread of the store's own. What it allocates itself
// never fails: only what a completion does.
class OtherThreadStore final : public WrappedStore {
 public:
  explicit OtherThreadStore(std::shared_ptr<Store> inner)
      : WrappedStore(std::move(inner)), thread_([this] { run(); }) {}
  ~OtherThreadStore() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void read(std::span<ReadRequest> requests) override {
    const bool before = std::exchange(counts, false);
    {
      const std::lock_guard lock(mutex_);
      for (auto& request : requests) queue_.push_back(std::move(request));
    }
    changed_.notify_all();
    counts = before;
  }
  Result<std::size_t> read_now(std::string_view, const ObjectVersion&, std::span<const Piece>,
                               Wait) override {
    return std::size_t{0};
  }
  bool is_remote() const override { return true; }
  void close() override {}

 private:
  void run() {
    counts = false;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      ReadRequest request = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      request.done = [done = std::move(request.done)](Result<ReadOutcome> outcome) {
        counts = true;
        done(std::move(outcome));
        counts = false;
      };
      inner().read({&request, 1});
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ReadRequest> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

struct Case {
  std::shared_ptr<Engine> engine;
  LoaderSpec spec;
};

Case table_case(bool cold, std::optional<Shape> shape) {
  auto format = std::make_unique<TableFormat>(std::vector<std::uint64_t>(40, 10), shape);
  std::shared_ptr<Store> store = blob_store(*format);
  if (cold) store = std::make_shared<OtherThreadStore>(store);
  Case made{small_engine(2), spec_of(table_dataset(std::move(format), store), 5)};
  return made;
}

Case shards_case() {
  const Counts counts_of_shards{6, 5, 9, 3};
  Far far(counts_of_shards);
  const auto store = std::make_shared<OtherThreadStore>(far.memory);
  auto engine = small_engine(2);
  engine->stores().add("far", [store](const Uri&) -> Result<std::shared_ptr<Store>> {
    return std::shared_ptr<Store>(store);
  });
  auto spec = window_spec(open_far(*engine, counts_of_shards.size()), 8, 4);
  return {std::move(engine), std::move(spec)};
}

// The batches of an epoch, and whether a refused allocation showed.
struct Seen {
  std::vector<std::uint64_t> rows;  // of batches without an error
  std::uint64_t refused = 0;
};

Seen run_epoch(Prefetcher& prefetcher) {
  Seen seen;
  while (auto batch = next(prefetcher)) {
    if (!batch->error) {
      seen.rows.push_back(batch->rows);
      continue;
    }
    CHECK(batch->error->code() == ErrorCode::resource_limit);
    ++seen.refused;
    if (!batch->in_order) break;  // the pass is over
  }
  return seen;
}

// Refuses every allocation of an epoch in turn; returns how many were an error.
std::uint64_t refuse_each(const std::function<Case()>& make) {
  std::uint64_t refused = 0;
  const std::uint64_t rows = [&] {
    const Case whole = make();
    const auto prefetcher = *Prefetcher::make(whole.engine, whole.spec);
    REQUIRE(prefetcher->seek(0, 0, 1));
    return run_epoch(*prefetcher).rows.size();
  }();
  for (std::int64_t place = 0;; ++place) {
    const Case made = make();
    {
      const auto prefetcher = *Prefetcher::make(made.engine, made.spec);
      REQUIRE(prefetcher->seek(0, 0, 1));
      counts = false;  // the consumer may be told by the exception itself
      allocations_left = place;
      const Seen seen = run_epoch(*prefetcher);
      const bool happened = allocations_left.exchange(-1) < 0;
      counts = true;
      refused += seen.refused;
      CHECK(seen.rows.size() + seen.refused <= rows);
      if (seen.refused == 0) CHECK(seen.rows.size() == rows);
      REQUIRE(prefetcher->seek(1, 0, 1));
      CHECK(run_epoch(*prefetcher).rows.size() == rows);
      if (!happened) return refused;
    }
    CHECK(made.engine->status().memory_used == 0);
  }
}

}  // namespace

TEST_CASE("memory refused at any place is an error of its batch or of the pass, and it goes on") {
  CHECK(refuse_each([] { return table_case(false, Shape{10}); }) > 0);
  CHECK(refuse_each([] { return table_case(true, Shape{10}); }) > 0);
  CHECK(refuse_each([] { return table_case(true, std::nullopt); }) > 0);
}

TEST_CASE("memory refused at any place while shards are streamed is an error, and it goes on") {
  CHECK(refuse_each(shards_case) > 0);
}

}  // namespace headpond
