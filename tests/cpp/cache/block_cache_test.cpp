#include "headpond/block_cache.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <filesystem>
#include <future>
#include <mutex>
#include <string>

#include "cache/cache_folder.h"
#include "cache/fill_file.h"
#include "cache/open_cache.h"
#include "support/catch.h"
#include "support/in_child.h"
#include "support/manual_clock.h"
#include "support/temp_dir.h"

using namespace headpond;

namespace {

constexpr std::uint64_t kBytes = 4 << 20;

// What stands at a place of a block: no two cells and no two objects are alike.
std::byte byte_at(const std::string& uri, std::uint64_t offset) {
  return static_cast<std::byte>((offset * 131 + (offset >> 12) * 7 + uri.size() * 31 + uri.back()) %
                                251);
}

std::shared_ptr<const Block> block_of(const std::string& uri, std::uint64_t start = 0,
                                      std::uint64_t bytes = kBytes) {
  ObjectVersion version;
  version.size = start + bytes;
  version.etag = "\"v1\"";
  return std::make_shared<const Block>(make_block({{uri, version, {start, start + bytes}}}));
}

// Makes the bytes up, held back until the test lets them go.
class GatedSource final : public BlockSource {
 public:
  explicit GatedSource(bool open = true) : open_(open) {}

  void fetch(const Block& block, std::uint64_t offset, std::span<std::byte> out,
             const StopToken& stop, std::function<void(Result<void>)> done) override {
    Held held{block.extents.front().uri, block.extents.front().range.start + offset, out, stop,
              std::move(done)};
    {
      const std::lock_guard lock(mutex_);
      ++fetches_;
      bytes_ += out.size();
      if (!open_) {
        held_.push_back(std::move(held));
        changed_.notify_all();
        return;
      }
    }
    answer(held);
  }
  void release() {
    std::deque<Held> held;
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
      held.swap(held_);
    }
    for (Held& one : held) answer(one);
  }
  void release_first() {
    Held held;
    {
      const std::lock_guard lock(mutex_);
      held = std::move(held_.front());
      held_.pop_front();
    }
    answer(held);
  }
  void await_held(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return held_.size() >= count; });
  }
  void fail(std::optional<Error> error) {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
  }
  std::size_t fetches() const {
    const std::lock_guard lock(mutex_);
    return fetches_;
  }
  std::uint64_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  struct Held {
    std::string uri;
    std::uint64_t offset = 0;
    std::span<std::byte> out;
    StopToken stop;
    std::function<void(Result<void>)> done;
  };
  void answer(Held& held) {
    std::optional<Error> error;
    {
      const std::lock_guard lock(mutex_);
      error = error_;
    }
    if (held.stop.stop_requested()) error = Error(ErrorCode::cancelled, "stopped");
    if (error) return held.done(Error(*error));
    for (std::size_t i = 0; i < held.out.size(); ++i)
      held.out[i] = byte_at(held.uri, held.offset + i);
    held.done({});
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Held> held_;
  std::optional<Error> error_;
  bool open_;
  std::size_t fetches_ = 0;
  std::uint64_t bytes_ = 0;
};

struct Reading {
  std::vector<std::byte> out;
  std::future<Result<void>> outcome;

  bool holds(const std::string& uri, std::uint64_t offset) const {
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out[i] != byte_at(uri, offset + i)) return false;
    }
    return true;
  }
};

Reading start(BlockCache& cache, const std::shared_ptr<const Block>& block, ByteRange range,
              const std::shared_ptr<BlockSource>& source, StopToken stop = {}) {
  Reading reading;
  reading.out.resize(range.size());
  auto promise = std::make_shared<std::promise<Result<void>>>();
  reading.outcome = promise->get_future();
  BlockRead read;
  read.block = block;
  read.offset = range.start;
  read.out = reading.out;
  read.source = source;
  read.stop = std::move(stop);
  read.done = [promise](Result<void> outcome) { promise->set_value(std::move(outcome)); };
  cache.read(std::move(read));
  return reading;
}

// A read from its begin to its end.
Reading take(BlockCache& cache, const std::shared_ptr<const Block>& block, ByteRange range,
             const std::shared_ptr<BlockSource>& source) {
  Reading reading = start(cache, block, range, source);
  reading.outcome.wait();
  return reading;
}

struct Fixture {
  TempDir dir;
  CacheOptions options;
  std::shared_ptr<ManualClock> clock = std::make_shared<ManualClock>();
  std::shared_ptr<LogQueue> log = std::make_shared<LogQueue>();
  std::shared_ptr<CacheOps> ops = std::make_shared<CacheOps>();
  std::shared_ptr<GatedSource> source = std::make_shared<GatedSource>();

  Fixture() {
    options.folder = dir.path("cache");
    options.size_bytes = std::uint64_t{64} << 20;
  }
  std::shared_ptr<BlockCache> open() {
    auto cache = open_block_cache(options, ops, clock, log);
    if (!cache) throw std::runtime_error(cache.error().to_string());
    return *cache;
  }
  std::size_t files(const char* below) const {
    std::size_t count = 0;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(options.folder + "/v1/" + below))
      count += entry.is_regular_file() ? 1 : 0;
    return count;
  }
  std::filesystem::path only_block() const {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(options.folder + "/v1/blocks")) {
      if (entry.is_regular_file()) return entry.path();
    }
    return {};
  }
};

const std::string kUri = "http://origin/train-0.tar";

}  // namespace

TEST_CASE("BlockCache: what was read once is read from disk, also by another process's cache") {
  Fixture f;
  {
    auto cache = f.open();
    auto first = take(*cache, block_of(kUri), {0, kBytes}, f.source);
    REQUIRE(first.outcome.get());
    CHECK(first.holds(kUri, 0));
    CHECK(f.source->bytes() == kBytes);
  }
  CHECK(f.files("blocks") == 1);
  CHECK(f.files("fill") == 0);
  auto cache = f.open();
  auto again = take(*cache, block_of(kUri), {5000, 123'456}, f.source);
  REQUIRE(again.outcome.get());
  CHECK(again.holds(kUri, 5000));
  CHECK(f.source->bytes() == kBytes);
  CHECK(cache->counters().hit_bytes == 123'456 - 5000);
}

TEST_CASE("BlockCache: read_now gives what is published, on the calling thread, and nothing else") {
  Fixture f;
  auto cache = f.open();
  const auto block = block_of(kUri);
  std::vector<std::byte> out(10'000);
  const Piece piece{4000, out};
  const auto describe = [&] { return *block; };
  CHECK(!cache->read_now(block->key, {&piece, 1}, Wait::allowed, describe));
  REQUIRE(take(*cache, block, {0, kBytes}, f.source).outcome.get());
  REQUIRE(cache->read_now(block->key, {&piece, 1}, Wait::allowed, describe));
  for (std::size_t i = 0; i < out.size(); ++i) REQUIRE(out[i] == byte_at(kUri, 4000 + i));
}

TEST_CASE("BlockCache: readers that miss together share one fetch") {
  Fixture f;
  auto cache = f.open();
  const auto source = std::make_shared<GatedSource>(false);
  std::vector<Reading> readings;
  readings.push_back(start(*cache, block_of(kUri), {0, kBytes}, source));
  source->await_held(1);
  for (std::uint64_t i = 0; i < 8; ++i)
    readings.push_back(start(*cache, block_of(kUri), {i * 1000, i * 1000 + 700'000}, source));
  source->release();
  for (std::size_t i = 0; i < readings.size(); ++i) {
    REQUIRE(readings[i].outcome.get());
    CHECK(readings[i].holds(kUri, i == 0 ? 0 : (i - 1) * 1000));
  }
  CHECK(source->fetches() == 1);
  CHECK(cache->counters().joined == 8);
  CHECK(cache->counters().missed == 1);
}

TEST_CASE("BlockCache: what is wanted comes first, and is given out before the rest has come") {
  Fixture f;
  auto cache = f.open();
  const auto source = std::make_shared<GatedSource>(false);
  auto reading = start(*cache, block_of(kUri), {2'000'000, 2'100'000}, source);
  source->await_held(3);
  source->release_first();
  REQUIRE(reading.outcome.get());
  CHECK(reading.holds(kUri, 2'000'000));
  CHECK(f.files("blocks") == 0);
  auto other = start(*cache, block_of(kUri), {0, 100}, source);
  source->release();
  REQUIRE(other.outcome.get());
  CHECK(other.holds(kUri, 0));
  CHECK(source->bytes() == kBytes);  // each byte once
}

TEST_CASE("BlockCache: an error of the source reaches all who wait, and nothing is kept") {
  Fixture f;
  auto cache = f.open();
  const auto source = std::make_shared<GatedSource>(false);
  source->fail(Error(ErrorCode::not_found, "gone"));
  auto first = start(*cache, block_of(kUri), {0, kBytes}, source);
  source->await_held(1);
  auto second = start(*cache, block_of(kUri), {10, 20}, source);
  source->release();
  for (Reading* reading : {&first, &second}) {
    const auto outcome = reading->outcome.get();
    REQUIRE(!outcome);
    CHECK(outcome.error().code() == ErrorCode::not_found);
  }
  CHECK(f.files("blocks") == 0);
  CHECK(f.files("fill") == 0);
  source->fail(std::nullopt);
  auto again = take(*cache, block_of(kUri), {10, 20}, source);
  REQUIRE(again.outcome.get());
  CHECK(again.holds(kUri, 10));
}

TEST_CASE("BlockCache: a part that fails leaves those who wanted others their bytes") {
  Fixture f;
  auto cache = f.open();
  const auto source = std::make_shared<GatedSource>(false);
  auto first = start(*cache, block_of(kUri), {2'000'000, 2'100'000}, source);
  source->await_held(3);
  source->release_first();
  REQUIRE(first.outcome.get());
  source->fail(Error(ErrorCode::unavailable, "503"));
  auto inside = start(*cache, block_of(kUri), {2'010'000, 2'020'000}, source);
  auto outside = start(*cache, block_of(kUri), {10, 20}, source);
  source->release();
  REQUIRE(inside.outcome.get());
  CHECK(inside.holds(kUri, 2'010'000));
  CHECK(!outside.outcome.get());
  CHECK(f.files("blocks") == 0);
}

TEST_CASE("BlockCache: one whose store is closed does not fail the others who wait") {
  Fixture f;
  auto cache = f.open();
  const auto closed = std::make_shared<GatedSource>(false);
  closed->fail(Error(ErrorCode::closed, "the store is closed"));
  auto first = start(*cache, block_of(kUri), {0, kBytes}, closed);
  closed->await_held(1);
  auto second = start(*cache, block_of(kUri), {10, 2000}, f.source);
  closed->release();
  CHECK(!first.outcome.get());
  REQUIRE(second.outcome.get());
  CHECK(second.holds(kUri, 10));
}

TEST_CASE("BlockCache: a damaged block is fetched again, and the reader gets the right bytes") {
  Fixture f;
  auto cache = f.open();
  REQUIRE(take(*cache, block_of(kUri), {0, kBytes}, f.source).outcome.get());
  const auto path = f.only_block();
  const int fd = ::open(path.c_str(), O_RDWR);
  REQUIRE(fd >= 0);
  const char wrong = 0x55;
  REQUIRE(::pwrite(fd, &wrong, 1, 8192 + 100'000) == 1);
  ::close(fd);
  auto again = take(*cache, block_of(kUri), {90'000, 110'000}, f.source);
  REQUIRE(again.outcome.get());
  CHECK(again.holds(kUri, 90'000));
  CHECK(cache->counters().damaged == 1);
  CHECK(f.source->bytes() == 2 * kBytes);
  CHECK(f.log->drain().size() == 1);
}

TEST_CASE("BlockCache: what the limit does not allow is read past the cache, its own range only") {
  Fixture f;
  f.options.size_bytes = 5 << 20;
  auto cache = f.open();
  REQUIRE(take(*cache, block_of(kUri), {0, kBytes}, f.source).outcome.get());
  const std::string other = "http://origin/other";
  auto past = take(*cache, block_of(other), {100, 5100}, f.source);
  REQUIRE(past.outcome.get());
  CHECK(past.holds(other, 100));
  CHECK(f.source->bytes() == kBytes + 5000);
  CHECK(cache->counters().past_bytes == 5000);
  CHECK(f.files("blocks") == 1);
  CHECK(f.files("fill") == 0);
}

TEST_CASE("BlockCache: a block can be asked for without its bytes, and is fetched once") {
  Fixture f;
  f.options.size_bytes = 5 << 20;
  auto cache = f.open();
  REQUIRE(take(*cache, block_of(kUri), {0, 0}, f.source).outcome.get());
  CHECK(f.files("blocks") == 1);
  REQUIRE(take(*cache, block_of(kUri), {0, 0}, f.source).outcome.get());
  auto reading = take(*cache, block_of(kUri), {10, 2000}, f.source);
  REQUIRE(reading.outcome.get());
  CHECK(reading.holds(kUri, 10));
  CHECK(f.source->bytes() == kBytes);
  auto last = take(*cache, block_of("http://origin/more"), {0, 0}, f.source);
  const auto refused = last.outcome.get();
  REQUIRE(!refused);
  CHECK(refused.error().code() == ErrorCode::resource_limit);
  CHECK(f.source->bytes() == kBytes);
}

TEST_CASE("BlockCache: a read that is stopped ends; the fetch goes on for the others") {
  Fixture f;
  auto cache = f.open();
  const auto source = std::make_shared<GatedSource>(false);
  StopSource stop;
  auto first = start(*cache, block_of(kUri), {0, 1000}, source, stop.get_token());
  source->await_held(2);
  auto second = start(*cache, block_of(kUri), {0, 2000}, source);
  stop.request_stop();
  cache->cancel_stopped();
  const auto outcome = first.outcome.get();
  REQUIRE(!outcome);
  CHECK(outcome.error().code() == ErrorCode::cancelled);
  source->release();
  REQUIRE(second.outcome.get());
  CHECK(second.holds(kUri, 0));
}

TEST_CASE("BlockCache: more blocks at once than memory allows come one after another") {
  Fixture f;
  f.options.memory_bytes = 1;  // so two at a time
  auto cache = f.open();
  const auto source = std::make_shared<GatedSource>(false);
  std::vector<Reading> readings;
  for (std::uint64_t i = 0; i < 6; ++i)
    readings.push_back(start(*cache, block_of(kUri, i * kBytes), {0, kBytes}, source));
  source->await_held(2);
  CHECK(source->fetches() == 2);
  source->release();
  for (std::uint64_t i = 0; i < 6; ++i) {
    REQUIRE(readings[i].outcome.get());
    CHECK(readings[i].holds(kUri, i * kBytes));
  }
}

namespace {

// A system call that fails from now on.
class FailingOps final : public CacheOps {
 public:
  std::atomic<int> pwrite_error = 0;
  ssize_t pwrite(int fd, const std::byte* bytes, std::size_t size, std::uint64_t offset) override {
    if (const int error = pwrite_error; error != 0) return -error;
    return CacheOps::pwrite(fd, bytes, size, offset);
  }
};

}  // namespace

TEST_CASE(
    "BlockCache: a disk that is full or broken never fails a read, and is left alone a while") {
  for (const int error : {ENOSPC, EDQUOT, EROFS, EIO}) {
    Fixture f;
    const auto ops = std::make_shared<FailingOps>();
    f.ops = ops;
    auto cache = f.open();
    ops->pwrite_error = error;
    for (std::uint64_t i = 0; i < 4; ++i) {
      auto reading = take(*cache, block_of(kUri, i * kBytes), {10, 5000}, f.source);
      REQUIRE(reading.outcome.get());
      CHECK(reading.holds(kUri, i * kBytes + 10));
    }
    CHECK(f.files("blocks") == 0);
    CHECK(f.log->drain().size() == 1);
    const auto failures = cache->counters().failures;
    CHECK(failures == 1);  // the others did not try
    ops->pwrite_error = 0;
    REQUIRE(take(*cache, block_of(kUri), {10, 5000}, f.source).outcome.get());
    CHECK(f.files("blocks") == 0);
    f.clock->advance(std::chrono::seconds(2));
    REQUIRE(take(*cache, block_of(kUri), {0, kBytes}, f.source).outcome.get());
    CHECK(f.files("blocks") == 1);
    CHECK(cache->counters().failures == failures);
  }
}

namespace {

// A child that holds the fill of a block with its first cells written, until it is killed.
pid_t hold_fill(const std::string& folder, const Block& block, std::uint64_t cells) {
  int ready[2];
  if (pipe(ready) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    auto opened = CacheFolder::open(folder, std::make_shared<CacheOps>());
    FillClaims claims;
    auto begun = FillFile::begin(*opened, block, *claims.claim(block.key));
    auto& file = std::get<std::unique_ptr<FillFile>>(*begun);
    std::vector<std::byte> bytes(cells * kCellBytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_at(block.extents.front().uri, i);
    const bool written = cells == 0 || file->write(0, bytes).has_value();
    const char done = written ? 1 : 0;
    if (write(ready[1], &done, 1) != 1) _exit(1);
    for (;;) pause();
  }
  REQUIRE(child > 0);
  char done = 0;
  REQUIRE(read(ready[0], &done, 1) == 1);
  REQUIRE(done == 1);
  ::close(ready[0]);
  ::close(ready[1]);
  return child;
}

void kill_and_wait(pid_t child) {
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
}

}  // namespace

TEST_CASE("BlockCache: when the filler dies the one who waits takes over its whole cells") {
  Fixture f;
  auto cache = f.open();
  const auto block = block_of(kUri);
  const pid_t child = hold_fill(f.options.folder, *block, 512);  // 2 MiB of 4
  auto reading = start(*cache, block, {0, kBytes}, f.source);
  CHECK(reading.outcome.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  CHECK(f.source->fetches() == 0);
  kill_and_wait(child);
  REQUIRE(reading.outcome.get());
  CHECK(reading.holds(kUri, 0));
  CHECK(f.source->bytes() == kBytes - 512 * kCellBytes);
  CHECK(f.files("blocks") == 1);
  CHECK(f.files("fill") == 0);
}

TEST_CASE("BlockCache: a filler that is alive and writes nothing for 5 s is passed by") {
  Fixture f;
  auto cache = f.open();
  const auto block = block_of(kUri);
  const pid_t child = hold_fill(f.options.folder, *block, 1);
  auto reading = start(*cache, block, {100, 5100}, f.source);
  // Its stamp is looked at every 10 ms; only here does time move.
  CHECK(reading.outcome.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout);
  CHECK(f.source->fetches() == 0);
  while (reading.outcome.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout)
    f.clock->advance(std::chrono::seconds(6));
  REQUIRE(reading.outcome.get());
  CHECK(reading.holds(kUri, 100));
  CHECK(f.source->bytes() == 5000);
  CHECK(cache->counters().stalled == 1);
  kill_and_wait(child);
}

TEST_CASE("BlockCache: the same folder by two paths is one cache; a forked child has its own") {
  Fixture f;
  auto cache = f.open();
  std::filesystem::create_directory_symlink(f.dir.path(), f.dir.path("link"));
  auto options = f.options;
  options.folder = f.dir.path("link/cache");
  const auto again = open_block_cache(options, f.ops, f.clock, f.log);
  REQUIRE(again);
  CHECK(again->get() == cache.get());
  REQUIRE(take(*cache, block_of(kUri), {0, kBytes}, f.source).outcome.get());
  NEEDS_THREADS_IN_CHILDREN();
  CHECK(in_child([&] {
          auto own = f.open();
          if (own.get() == cache.get()) return 1;
          auto reading = take(*own, block_of(kUri), {10, 1000}, f.source);
          if (!reading.outcome.get() || !reading.holds(kUri, 10)) return 2;
          return own->counters().hits == 1 ? 0 : 3;
        }) == 0);
}
