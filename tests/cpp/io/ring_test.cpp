// Local reads on the ring: chains, O_DIRECT, and what happens when the kernel says no.

#include <sys/resource.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

#include "io/cache_policy.h"
#include "io/faulty_ops.h"
#include "io/local_fixture.h"
#include "support/catch.h"
#include "support/thread_count.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

struct RingFixture : LocalFixture {
  explicit RingFixture(std::unique_ptr<FaultyOps> ops = nullptr,
                       IoOptions options = with_backend(IoBackend::uring))
      : LocalFixture(options, true, LocalIoSeams{std::move(ops), std::chrono::milliseconds(50)}) {}

  bool available() { return io->status().backend == "uring"; }
  ObjectVersion version(const std::string& name) { return stat_blocking(store(), name)->version; }
  std::vector<std::string> infos() {
    std::vector<std::string> texts;
    for (auto& record : log->drain()) texts.push_back(std::move(record.text));
    return texts;
  }
};

struct Wanted {
  std::string object;
  std::uint64_t offset = 0;
  Bytes bytes;
  ObjectVersion expected;
};

// Reads all at once; the texts of wrong bytes and errors.
std::vector<std::string> read_all(Store& store, std::vector<Wanted>& wanted) {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t left = wanted.size();
  std::vector<std::string> wrong;
  std::vector<Bytes> out;
  std::vector<ReadRequest> requests;
  for (auto& each : wanted) out.emplace_back(each.bytes.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ReadRequest request;
    request.object = wanted[i].object;
    request.offset = wanted[i].offset;
    request.out = out[i];
    request.expected = wanted[i].expected;
    request.done = [&, i](Result<ReadOutcome> outcome) {
      const std::lock_guard lock(mutex);
      if (!outcome) {
        wrong.push_back(outcome.error().to_string());
      } else if (outcome->bytes != out[i].size() || out[i] != wanted[i].bytes) {
        wrong.push_back("wrong bytes of " + wanted[i].object + " at " +
                        std::to_string(wanted[i].offset));
      }
      --left;
      changed.notify_all();
    };
    requests.push_back(std::move(request));
  }
  store.read(requests);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return left == 0; });
  return wrong;
}

std::vector<Wanted> small_files(RingFixture& ring, std::size_t count) {
  std::vector<Wanted> wanted;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = "d/" + std::to_string(i);
    ring.put(name, pattern(1 + i * 331 % 60'000, i));
    wanted.push_back({name, 0, pattern(1 + i * 331 % 60'000, i), ring.version(name)});
  }
  return wanted;
}

constexpr std::size_t kLarge = 5'000'123;

std::vector<Wanted> large_ranges(RingFixture& ring, std::size_t count = 40) {
  const Bytes bytes = pattern(kLarge, 7);
  ring.put("large", bytes);
  std::vector<Wanted> wanted;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t size = 70'000 + (i * 47'117) % 1'500'000;
    const std::size_t offset = (i * 991'777) % (kLarge - size);
    wanted.push_back({"large", offset, part(bytes, offset, size), ring.version("large")});
  }
  return wanted;
}

std::set<std::string> thread_names() {
  std::set<std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    names.insert(name);
  }
  return names;
}

#define NEEDS_RING(ring) \
  if (!(ring).available()) HP_SKIP("this kernel or container gives no io_uring")

}  // namespace

TEST_CASE("cold small files are linked chains: three ring entries each, no handle, one thread") {
  RingFixture ring;
  NEEDS_RING(ring);
  auto wanted = small_files(ring, 300);
  const IoCounters before = ring.io->counters();
  CHECK(read_all(ring.store(), wanted).empty());
  const IoCounters after = ring.io->counters();
  CHECK(after.cold_reads - before.cold_reads == 300);
  CHECK(after.ring_entries - before.ring_entries <= 3 * 300 + 8);
  CHECK(after.ring_entries - before.ring_entries >= 3 * 300);
  // A stat per file, and the enters: well below the four calls that each file would cost.
  CHECK(after.system_calls - before.system_calls < 3 * 300);
  CHECK(after.failures == 0);
  const auto names = thread_names();
  CHECK(names.count("hp-io") == 1);
  CHECK(names.count("hp-io-0") == 0);
}

TEST_CASE("cold large ranges go past the page cache, whatever their alignment") {
  RingFixture ring;
  NEEDS_RING(ring);
  auto wanted = large_ranges(ring);
  const Bytes bytes = pattern(kLarge, 7);
  const std::size_t block = 512 << 10;
  for (const std::size_t edge : {std::size_t{0}, std::size_t{4096}, block, 2 * block, kLarge}) {
    for (const int before : {0, 1, 511, 4096}) {
      for (const std::size_t size :
           {std::size_t{65'536}, std::size_t{65'537}, block, block + 1, 3 * block}) {
        if (edge < static_cast<std::size_t>(before)) continue;
        const std::size_t offset = std::min(edge - static_cast<std::size_t>(before), kLarge - size);
        wanted.push_back({"large", offset, part(bytes, offset, size), {}});
      }
    }
  }
  std::uint64_t bytes_wanted = 0;
  for (const auto& each : wanted) bytes_wanted += each.bytes.size();
  CHECK(read_all(ring.store(), wanted).empty());
  // Together they are more than the file: what is read again may come through the cache.
  CHECK(bytes_wanted > kLarge);
  CHECK(ring.io->counters().direct_bytes >= kLarge);
  CHECK(ring.io->status().fixed_buffers);
}

TEST_CASE(
    "CachePolicy: the first pass is direct, a second one only when the files do not fit in "
    "memory") {
  CachePolicy roomy(1000 << 20);
  for (int i = 0; i < 10; ++i) CHECK(roomy.direct(1, 10 << 20, 1 << 20));
  CHECK(!roomy.direct(1, 10 << 20, 1 << 20));
  CHECK(roomy.direct(2, 10 << 20, 1 << 20));
  CHECK(!roomy.direct(2, 10 << 20, 100));
  CachePolicy tight(15 << 20);
  for (int i = 0; i < 30; ++i) CHECK(tight.direct(1, 10 << 20, 1 << 20));
}

TEST_CASE("short reads, EINTR, EAGAIN and ECANCELED are tried again and never seen") {
  auto ops = std::make_unique<FaultyOps>();
  std::atomic<unsigned> calls = 0;
  ops->on_ring_result = [&calls](RingCall call, int result) {
    if (call == RingCall::chain_close || result <= 1) return result;
    switch (++calls % 7) {
      case 1:
        return -EINTR;
      case 2:
        return -EAGAIN;
      case 3:
        return call == RingCall::chain_read || call == RingCall::read ? std::max(1, result / 3)
                                                                      : result;
      case 4:
        return call == RingCall::read_fixed ? std::max(1, result - 4097) : -ECANCELED;
      default:
        return result;
    }
  };
  ops->on_pread = [&calls](std::byte*, std::size_t bytes, std::uint64_t, int,
                           auto real) -> ssize_t {
    if (++calls % 3 == 0) return -EINTR;
    return real(std::max<std::size_t>(1, bytes / 2));
  };
  RingFixture ring(std::move(ops));
  NEEDS_RING(ring);
  auto wanted = small_files(ring, 100);
  CHECK(read_all(ring.store(), wanted).empty());
  wanted = large_ranges(ring);
  CHECK(read_all(ring.store(), wanted).empty());
  CHECK(ring.io->counters().retries > 20);
  CHECK(ring.io->counters().failures == 0);
}

TEST_CASE("a ring with room for fewer completions than are in flight loses none") {
  auto ops = std::make_unique<FaultyOps>();
  std::atomic<int> setups = 0;
  ops->on_setup = [&setups] { return setups++ == 0 ? -ENOMEM : 0; };  // the small ring is taken
  IoOptions options = with_backend(IoBackend::uring);
  options.depth = 256;
  LocalFixture local(options, false, LocalIoSeams{std::move(ops)});  // warm: all complete at once
  if (local.io->status().backend != "uring") HP_SKIP("this kernel or container gives no io_uring");
  std::vector<Wanted> wanted;
  for (std::size_t i = 0; i < 600; ++i) {
    const std::string name = "d/" + std::to_string(i);
    local.put(name, pattern(3000 + i, i));
    wanted.push_back({name, 0, pattern(3000 + i, i), stat_blocking(local.store(), name)->version});
  }
  setups = 0;
  CHECK(read_all(local.store(), wanted).empty());
  CHECK(setups == 2);
  CHECK(read_all(local.store(), wanted).empty());
  CHECK(local.io->counters().failures == 0);
}

TEST_CASE("a ring that refuses work now and then loses no read and does none twice") {
  auto ops = std::make_unique<FaultyOps>();
  std::atomic<unsigned> calls = 0;
  ops->on_submit = [&calls] {
    switch (++calls % 6) {
      case 2:
        return -EBUSY;
      case 4:
        return -EAGAIN;
      case 5:
        return -EINTR;
      default:
        return 0;
    }
  };
  IoOptions options = with_backend(IoBackend::uring);
  options.depth = 8;
  LocalFixture local(options, true, LocalIoSeams{std::move(ops)});
  if (local.io->status().backend != "uring") HP_SKIP("this kernel or container gives no io_uring");
  std::vector<Wanted> files;
  for (std::size_t i = 0; i < 100; ++i) {
    const std::string name = "d/" + std::to_string(i);
    local.put(name, pattern(3000 + i, i));
    files.push_back({name, 0, pattern(3000 + i, i), stat_blocking(local.store(), name)->version});
  }
  std::vector<Wanted> wanted;
  for (int again = 0; again < 100; ++again) wanted.insert(wanted.end(), files.begin(), files.end());
  CHECK(read_all(local.store(), wanted).empty());
  CHECK(local.io->counters().failures == 0);
  CHECK(calls > 100);
}

TEST_CASE("threads: short reads and EINTR go on, EIO is read once more") {
  auto ops = std::make_unique<FaultyOps>();
  std::atomic<unsigned> calls = 0;
  std::atomic<int> bad = 0;
  ops->on_pread = [&](std::byte*, std::size_t bytes, std::uint64_t, int, auto real) -> ssize_t {
    if (bad > 0) return bad--, -EIO;
    if (++calls % 3 == 0) return -EINTR;
    return real(std::max<std::size_t>(1, bytes / 2));
  };
  LocalFixture local(with_backend(IoBackend::threads), true, LocalIoSeams{std::move(ops)});
  local.put("file", pattern(500'000));
  for (const int errors : {0, 1, 2}) {
    bad = errors;
    Bytes out(400'000);
    auto outcome = read_blocking(local.store(), "file", 77, out);
    CHECK(bad == 0);
    REQUIRE(outcome.has_value() == (errors < 2));
    if (outcome) CHECK(out == part(pattern(500'000), 77, out.size()));
    if (!outcome) CHECK(outcome.error().code() == ErrorCode::io_failed);
  }
  CHECK(local.io->counters().retries > 20);
}

TEST_CASE(
    "when the machine has no handle left, cached ones are given up; then the error says whose "
    "limit") {
  for (const auto backend : {IoBackend::threads, IoBackend::uring}) {
    auto ops = std::make_unique<FaultyOps>();
    std::atomic<int> refused = 0;
    ops->on_open = [&](const char*, int, auto real) {
      return refused > 0 ? (refused--, -ENFILE) : real();
    };
    ops->on_ring_result = [&](RingCall call, int result) {
      if (refused == 0 || (call != RingCall::open && call != RingCall::chain_open)) return result;
      if (call == RingCall::open && result >= 0) ::close(result);
      return -ENFILE;
    };
    LocalFixture local(with_backend(backend), true, LocalIoSeams{std::move(ops)});
    Bytes out(50);
    for (int i = 0; i < 21; ++i) local.put("f" + std::to_string(i), pattern(100));
    for (int i = 0; i < 20; ++i)
      REQUIRE(read_blocking(local.store(), "f" + std::to_string(i), 20, out));
    refused = 1;
    REQUIRE(read_blocking(local.store(), "f20", 20, out));
    CHECK(out == part(pattern(100), 20, 50));
    CHECK(refused == 0);
    refused = 1'000;
    for (int i = 0; i < 3; ++i) {
      auto outcome = read_blocking(local.store(), "f0", 20, out);
      REQUIRE(!outcome);
      CHECK(outcome.error().code() == ErrorCode::resource_limit);
      CHECK_THAT(outcome.error().to_string(), ContainsSubstring("fs.file-max"));
    }
    CHECK(refused > 900);  // tried only while there was something to give up
    refused = 0;
    CHECK(read_blocking(local.store(), "f0", 20, out));
  }
}

TEST_CASE("EIO is read once more, then it is io_failed: at most two reads of a range") {
  for (const bool heals : {true, false}) {
    for (const std::size_t size : {std::size_t{50'000}, std::size_t{400'000}}) {
      auto ops = std::make_unique<FaultyOps>();
      auto* seam = ops.get();
      std::atomic<int> reads = 0;
      seam->on_ring_result = [&reads](RingCall call, int result) {
        if (call != RingCall::read && call != RingCall::read_fixed && call != RingCall::chain_read)
          return result;
        ++reads;
        return -EIO;
      };
      seam->on_pread = [&reads, heals](std::byte*, std::size_t bytes, std::uint64_t, int,
                                       auto real) -> ssize_t {
        ++reads;
        return heals ? real(bytes) : -EIO;
      };
      RingFixture ring(std::move(ops));
      NEEDS_RING(ring);
      ring.put("file", pattern(size));
      std::vector<Wanted> whole = {{"file", 0, pattern(size), ring.version("file")}};
      const auto wrong = read_all(ring.store(), whole);
      CHECK(reads == 2);
      REQUIRE(wrong.size() == (heals ? 0u : 1u));
      if (!heals)
        CHECK_THAT(wrong[0],
                   ContainsSubstring("Input/output error") && ContainsSubstring("/file[0, "));
    }
  }
}

TEST_CASE("a ring that is refused means threads, with one INFO line that says why") {
  for (const int refusal : {EPERM, ENOSYS, ENOMEM, EINVAL}) {
    auto ops = std::make_unique<FaultyOps>();
    ops->setup_result = -refusal;
    RingFixture ring(std::move(ops));
    const auto status = ring.io->status();
    CHECK(status.backend == "threads");
    CHECK_THAT(status.reason,
               ContainsSubstring("io_uring_setup: " + std::generic_category().message(refusal)));
    auto wanted = small_files(ring, 50);
    CHECK(read_all(ring.store(), wanted).empty());
    CHECK(read_all(ring.store(), wanted).empty());
    const auto infos = ring.infos();
    REQUIRE(infos.size() == 1);
    CHECK_THAT(infos[0], ContainsSubstring(status.reason));
    CHECK(ring.io->status().backend == "threads");
    CHECK(ring.io->status().reason == status.reason);
  }
}

TEST_CASE("asked for, threads are used and need no reason") {
  LocalFixture local(with_backend(IoBackend::threads));
  local.put("file", pattern(100));
  Bytes out(100);
  REQUIRE(read_blocking(local.store(), "file", 0, out));
  CHECK(local.io->status().backend == "threads");
  CHECK(local.io->status().reason.empty());
  CHECK(local.io->counters().ring_entries == 0);
  CHECK(local.log->drain().empty());
}

TEST_CASE("buffers that cannot be registered are used without, and the INFO line names the limit") {
  auto ops = std::make_unique<FaultyOps>();
  ops->register_result = -ENOMEM;
  RingFixture ring(std::move(ops));
  NEEDS_RING(ring);
  auto wanted = large_ranges(ring, 3);
  CHECK(read_all(ring.store(), wanted).empty());
  CHECK(!ring.io->status().fixed_buffers);
  CHECK(ring.io->counters().direct_bytes > 0);
  const auto infos = ring.infos();
  REQUIRE(infos.size() == 1);
  CHECK_THAT(infos[0], ContainsSubstring("ulimit -l"));
}

TEST_CASE("each operation that the ring refuses has another way") {
  struct Refusal {
    RingCall call;
    int error;
  };
  for (const auto refusal :
       {Refusal{RingCall::chain_open, EACCES}, Refusal{RingCall::chain_read, EBADF},
        Refusal{RingCall::chain_read, EINVAL}, Refusal{RingCall::open, EINVAL},
        Refusal{RingCall::read, EACCES}, Refusal{RingCall::read, EINVAL},
        Refusal{RingCall::read_fixed, EINVAL}}) {
    auto ops = std::make_unique<FaultyOps>();
    std::atomic<int> refused = 0;
    ops->on_ring_result = [&, refusal](RingCall call, int result) {
      if (call != refusal.call) return result;
      if (call == RingCall::open && result >= 0) ::close(result);
      ++refused;
      return -refusal.error;
    };
    IoOptions options = with_backend(IoBackend::uring);
    options.depth = 4;  // so that what is learned shows within few reads
    RingFixture ring(std::move(ops), options);
    NEEDS_RING(ring);
    auto wanted = small_files(ring, 100);
    CHECK(read_all(ring.store(), wanted).empty());
    auto large = large_ranges(ring, 10);
    CHECK(read_all(ring.store(), large).empty());
    CHECK(ring.io->counters().failures == 0);
    INFO("operation " << static_cast<int>(refusal.call) << " refused " << refused);
    if (refusal.call == RingCall::chain_open || refusal.call == RingCall::chain_read) {
      CHECK(refused < 30);  // then no longer tried
      CHECK(ring.infos().size() == 1);
    }
  }
}

TEST_CASE("O_DIRECT refused at open or at the first read means the page cache, said once") {
  SECTION("at open") {
    auto ops = std::make_unique<FaultyOps>();
    ops->on_open = [](const char*, int flags, auto real) {
      return (flags & O_DIRECT) != 0 ? -EINVAL : real();
    };
    RingFixture ring(std::move(ops));
    NEEDS_RING(ring);
    auto wanted = large_ranges(ring);
    CHECK(read_all(ring.store(), wanted).empty());
    CHECK(ring.io->counters().direct_bytes == 0);
  }
  SECTION("at the read, fixed or not") {
    auto ops = std::make_unique<FaultyOps>();
    std::atomic<int> direct = 0;
    ops->on_ring_result = [&](RingCall call, int result) {
      if (call == RingCall::read_fixed) return ++direct, -EINVAL;
      // The same block again, not fixed: also refused.
      return call == RingCall::read && direct > 0 && result >= 0 && direct-- > 0 ? -EINVAL : result;
    };
    RingFixture ring(std::move(ops));
    NEEDS_RING(ring);
    auto wanted = large_ranges(ring, 1);
    wanted[0].offset = 0;
    wanted[0].bytes = part(pattern(kLarge, 7), 0, 100'000);
    CHECK(read_all(ring.store(), wanted).empty());
    CHECK(ring.io->counters().direct_bytes == 0);
    const auto infos = ring.infos();
    REQUIRE(infos.size() == 1);
    CHECK_THAT(infos[0], ContainsSubstring("O_DIRECT is refused"));
  }
}

TEST_CASE("a read that the ring never gives back does not hold up close, and its done never runs") {
#ifdef __SANITIZE_ADDRESS__
  HP_SKIP("LeakSanitizer cannot look into the thread that is left to the kernel");
#endif
  auto ops = std::make_unique<FaultyOps>();
  // Outlives the fixture: the abandoned thread still asks it.
  struct Lost {
    std::mutex mutex;
    std::condition_variable changed;
    int count = 0;
  };
  auto lost = std::make_shared<Lost>();
  ops->on_ring_result = [lost](RingCall call, int result) {
    if (call != RingCall::chain_close) return result;
    const std::lock_guard lock(lost->mutex);
    ++lost->count;
    lost->changed.notify_all();
    return FileOps::kLost;
  };
  auto memory = std::make_shared<Bytes>(100);
  const std::weak_ptr<Bytes> watch = memory;
  auto done = std::make_shared<std::atomic<int>>(0);
  {
    RingFixture ring(std::move(ops));
    NEEDS_RING(ring);
    ring.put("file", pattern(100));
    std::vector<ReadRequest> requests(2);
    for (auto& request : requests) {
      request.object = "file";
      request.out = *memory;
      request.expected = ring.version("file");
      request.done = [done, memory](Result<ReadOutcome>) { ++*done; };
    }
    memory.reset();
    ring.store().read(requests);
    requests.clear();
    {
      std::unique_lock lock(lost->mutex);
      lost->changed.wait(lock, [&] { return lost->count == 2; });
    }
    ring.io->close();
    CHECK(*done == 0);
    const auto texts = ring.infos();
    REQUIRE(texts.size() == 1);
    CHECK_THAT(texts[0], ContainsSubstring("2 reads did not come back"));
  }
  CHECK(*done == 0);
  CHECK(!watch.expired());  // the kernel may still write there
}

TEST_CASE("a pread that does not return does not hold up close, and its done never runs") {
  auto ops = std::make_unique<FaultyOps>();
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool waiting = false;
    bool open = false;
    bool left = false;
  };
  auto gate = std::make_shared<Gate>();
  ops->on_pread = [gate](std::byte*, std::size_t bytes, std::uint64_t, int, auto real) -> ssize_t {
    std::unique_lock lock(gate->mutex);
    gate->waiting = true;
    gate->changed.notify_all();
    gate->changed.wait(lock, [&] { return gate->open; });
    return real(bytes);
  };
  // Outlives the store, as a slab would that `done` holds.
  auto memory = std::make_shared<Bytes>(100);
  auto done = std::make_shared<std::atomic<int>>(0);
  const std::weak_ptr<Bytes> watch = memory;
  {
    RingFixture local(std::move(ops), with_backend(IoBackend::threads));
    local.put("file", pattern(100));
    ReadRequest request;
    request.object = "file";
    request.out = *memory;
    request.done = [done, memory](Result<ReadOutcome>) { ++*done; };
    memory.reset();
    local.store().read(std::span(&request, 1));
    {
      std::unique_lock lock(gate->mutex);
      gate->changed.wait(lock, [&] { return gate->waiting; });
    }
    local.io->close();
    CHECK(local.infos().size() == 1);
  }
  {
    const std::lock_guard lock(gate->mutex);
    gate->open = true;
    gate->changed.notify_all();
  }
  CHECK(*done == 0);
  CHECK(!watch.expired());
}

TEST_CASE("a done may start reads, and may let go of the last owner of everything") {
  for (const auto backend : {IoBackend::threads, IoBackend::uring}) {
    auto local = std::make_unique<LocalFixture>(with_backend(backend), true);
    local->put("file", pattern(1000));
    struct Chain {
      std::shared_ptr<Store> store;
      std::shared_ptr<LocalIo> io;
      Bytes out = Bytes(1000);
      std::mutex mutex;
      std::condition_variable changed;
      int done = 0;
    };
    auto chain = std::make_shared<Chain>();
    chain->store = local->opened;
    chain->io = local->io;
    struct Next {
      static void read(const std::shared_ptr<Chain>& chain, int depth) {
        ReadRequest request;
        request.object = "file";
        request.out = chain->out;
        request.done = [chain, depth](Result<ReadOutcome> outcome) {
          if (!outcome || chain->out != pattern(1000)) return;
          if (depth > 0) return read(chain, depth - 1);
          const std::lock_guard lock(chain->mutex);
          chain->done = 1;
          chain->changed.notify_all();
        };
        chain->store->read(std::span(&request, 1));
      }
    };
    Next::read(chain, 20);
    local->opened.reset();
    local->io.reset();  // `chain` is the last owner, and the last done the last of its
    std::unique_lock lock(chain->mutex);
    CHECK(
        chain->changed.wait_for(lock, std::chrono::seconds(20), [&] { return chain->done == 1; }));
  }
}

TEST_CASE("stores that come and go leave no thread and no descriptor") {
  const auto count = [](const char* folder) {
    const auto entries = std::filesystem::directory_iterator(folder);
    return std::distance(begin(entries), end(entries));
  };
  const auto threads = thread_count();
  const auto descriptors = count("/proc/self/fd");
  for (int i = 0; i < 60; ++i) {
    LocalFixture local(with_backend(i % 2 == 0 ? IoBackend::uring : IoBackend::threads), true);
    local.put("file", pattern(200'000));
    Bytes out(100'000);
    ReadRequest request;
    request.object = "file";
    request.out = out;
    request.done = [](Result<ReadOutcome>) {};
    if (i % 3 > 0) local.store().read(std::span(&request, 1));
    if (i % 3 == 1) local.io->close();
    local.io->close();
  }
  CHECK(count("/proc/self/fd") <= descriptors);
  CHECK(threads_fall_to(threads));
}

TEST_CASE("nothing runs before the first cold read, and listing starts no reactor") {
  LocalFixture local(IoOptions{});
  local.put("a/file", pattern(10));
  const auto before = thread_count();
  REQUIRE(list_blocking(local.store()));
  static_cast<void>(local.io->status());
  Bytes out(10);
  const Piece piece{0, out};
  REQUIRE(*local.store().read_now("a/file", {}, std::span(&piece, 1), Wait::allowed) == 1);
  CHECK(thread_count() <= before);
}
