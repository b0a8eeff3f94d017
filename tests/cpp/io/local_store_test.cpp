#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/unique_fd.h"
#include "io/faulty_ops.h"
#include "io/local_fixture.h"
#include "support/catch.h"
#include "support/gated_store.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::vector<IoBackend> kBackends = {IoBackend::threads, IoBackend::uring};

ErrorCode code_of_read(Store& store, const std::string& object, std::size_t size = 10,
                       const ObjectVersion& expected = {}) {
  Bytes out(size);
  auto outcome = read_blocking(store, object, 0, out, expected);
  REQUIRE(!outcome);
  CHECK_THAT(outcome.error().to_string(), ContainsSubstring(object));
  return outcome.error().code();
}

ErrorCode code_of_read_now(Store& store, const std::string& object, std::size_t size = 10,
                           const ObjectVersion& expected = {}) {
  Bytes out(size);
  const Piece piece{0, out};
  auto filled = store.read_now(object, expected, std::span(&piece, 1), Wait::allowed);
  REQUIRE(!filled);
  return filled.error().code();
}

ObjectVersion of_size(std::uint64_t size) {
  ObjectVersion version;
  version.size = size;
  return version;
}

}  // namespace

TEST_CASE("a local store conforms, warm and cold, on both backends") {
  for (const auto backend : kBackends) {
    for (const bool cold : {false, true}) {
      DYNAMIC_SECTION((backend == IoBackend::uring ? "uring" : "threads")
                      << (cold ? " cold" : " warm")) {
        store_conformance(
            [&] { return std::make_unique<LocalFixture>(with_backend(backend), cold); });
      }
    }
  }
}

TEST_CASE("a local store conforms behind an open gate") {
  class Gated final : public StoreFixture {
   public:
    Gated() { gated_.release(); }
    Store& store() override { return gated_; }
    void put(const std::string& object, const Bytes& bytes) override { local_.put(object, bytes); }

   private:
    LocalFixture local_{IoOptions{}};
    GatedStore gated_{local_.opened};
  };
  store_conformance([] { return std::make_unique<Gated>(); });
}

TEST_CASE("what is no regular file is refused at once") {
  for (const auto backend : kBackends) {
    LocalFixture local(with_backend(backend));
    REQUIRE(mkfifo(local.dir.path("fifo").c_str(), 0600) == 0);
    REQUIRE(mkdir(local.dir.path("folder").c_str(), 0700) == 0);
    REQUIRE(symlink("/dev/zero", local.dir.path("device").c_str()) == 0);
    struct sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    local.dir.path("socket").copy(address.sun_path, sizeof(address.sun_path) - 1);
    const UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    for (const std::string name : {"fifo", "folder", "device", "socket"}) {
      INFO(name);
      // As a range, and as a whole small file of a known size (a chain on the ring).
      CHECK(code_of_read(local.store(), name) == ErrorCode::not_regular);
      CHECK(code_of_read(local.store(), name, 10, of_size(10)) == ErrorCode::not_regular);
      CHECK(code_of_read(local.store(), name, 0, of_size(0)) == ErrorCode::not_regular);
      CHECK(code_of_read_now(local.store(), name) == ErrorCode::not_regular);
      CHECK(code_of_read_now(local.store(), name, 10, of_size(10)) == ErrorCode::not_regular);
      CHECK(stat_blocking(local.store(), name).error().code() == ErrorCode::not_regular);
    }
  }
}

TEST_CASE(
    "a deleted file is not_found, a link loop names itself, NUL and overlong names are refused") {
  for (const auto backend : kBackends) {
    LocalFixture local(with_backend(backend));
    local.put("file", pattern(10));
    auto info = stat_blocking(local.store(), "file");
    REQUIRE(info);
    REQUIRE(unlink(local.dir.path("file").c_str()) == 0);
    CHECK(code_of_read(local.store(), "file", 10, info->version) == ErrorCode::not_found);
    REQUIRE(symlink("loop", local.dir.path("loop").c_str()) == 0);
    CHECK(code_of_read(local.store(), "loop") == ErrorCode::invalid_argument);
    Bytes out(1);
    CHECK(read_blocking(local.store(), std::string("a\0b", 3), 0, out).error().code() ==
          ErrorCode::invalid_argument);
    for (const std::size_t length : {300u, 4095u, 5000u, 100'000u}) {
      auto outcome = read_blocking(local.store(), std::string(length, 'x'), 0, out);
      REQUIRE(!outcome);
      CHECK(outcome.error().code() == ErrorCode::invalid_argument);
    }
  }
}

TEST_CASE("a file without permission is access_denied") {
  if (geteuid() == 0) HP_SKIP("root may read everything");
  LocalFixture local(IoOptions{});
  local.put("secret", pattern(10));
  REQUIRE(chmod(local.dir.path("secret").c_str(), 0) == 0);
  CHECK(code_of_read(local.store(), "secret") == ErrorCode::access_denied);
}

TEST_CASE(
    "a file that says 0 bytes and holds more is read to its end by range, refused as a whole") {
  for (const auto backend : kBackends) {
    const auto io = make_local_io(with_backend(backend), nullptr);
    Uri root;
    root.path = "/proc/self";
    const auto store = io->open(root);
    Bytes out(100'000);
    auto outcome = read_blocking(*store, "maps", 0, out);
    REQUIRE(outcome);
    CHECK(outcome->bytes > 100);
    CHECK(code_of_read(*store, "maps", 0, of_size(0)) == ErrorCode::object_changed);
    CHECK(code_of_read_now(*store, "maps", 0, of_size(0)) == ErrorCode::object_changed);
  }
}

TEST_CASE("a file cut while its handle is open is object_changed with both sizes, never zeros") {
  for (const auto backend : kBackends) {
    for (const std::size_t size : {std::size_t{200'000}, std::size_t{3'000'000}}) {
      LocalFixture local(with_backend(backend), true);
      local.put("file", pattern(size));
      auto info = stat_blocking(local.store(), "file");
      REQUIRE(info);
      Bytes out(size / 2);
      REQUIRE(read_blocking(local.store(), "file", 10, out, info->version));
      REQUIRE(truncate(local.dir.path("file").c_str(), 1000) == 0);
      for (const std::uint64_t offset : {std::uint64_t{10}, std::uint64_t{5000}}) {
        auto cut = read_blocking(local.store(), "file", offset, out, info->version);
        REQUIRE(!cut);
        CHECK(cut.error().code() == ErrorCode::object_changed);
        CHECK_THAT(cut.error().to_string(), ContainsSubstring(std::to_string(size) + " bytes") &&
                                                ContainsSubstring("1000 bytes"));
      }
      const Piece piece{10, out};
      auto now = local.store().read_now("file", info->version, std::span(&piece, 1), Wait::allowed);
      REQUIRE(!now);
      CHECK(now.error().code() == ErrorCode::object_changed);
    }
  }
}

TEST_CASE("a whole small file that grew or shrank is object_changed with both sizes") {
  for (const auto backend : kBackends) {
    for (const std::size_t now : {99u, 101u, 0u, 5000u}) {
      LocalFixture local(with_backend(backend), true);
      local.put("file", pattern(100));
      auto info = stat_blocking(local.store(), "file");
      REQUIRE(info);
      local.put("file", pattern(now));
      Bytes out(100);
      auto outcome = read_blocking(local.store(), "file", 0, out, info->version);
      REQUIRE(!outcome);
      CHECK(outcome.error().code() == ErrorCode::object_changed);
      CHECK_THAT(
          outcome.error().to_string(),
          ContainsSubstring("100 bytes") && ContainsSubstring(std::to_string(now) + " bytes"));
      CHECK(code_of_read_now(local.store(), "file", 100, info->version) ==
            ErrorCode::object_changed);
    }
  }
}

TEST_CASE("a file rewritten in place with the same size is noticed by its mtime") {
  for (const auto backend : kBackends) {
    LocalFixture local(with_backend(backend), true);
    local.put("file", pattern(100, 1));
    auto info = stat_blocking(local.store(), "file");
    REQUIRE(info);
    local.put("file", pattern(100, 2));
    CHECK(code_of_read(local.store(), "file", 100, info->version) == ErrorCode::object_changed);
    CHECK(code_of_read_now(local.store(), "file", 100, info->version) == ErrorCode::object_changed);
  }
}

TEST_CASE(
    "a file replaced by rename: an open handle keeps the old bytes, the new version opens the "
    "new") {
  for (const auto backend : kBackends) {
    LocalFixture local(with_backend(backend));
    local.put("file", pattern(50'000, 1));
    const auto old_version = stat_blocking(local.store(), "file")->version;
    Bytes out(1000);
    REQUIRE(read_blocking(local.store(), "file", 77, out, old_version));
    local.put("other", pattern(50'000, 2));
    std::filesystem::rename(local.dir.path("other"), local.dir.path("file"));
    REQUIRE(read_blocking(local.store(), "file", 77, out, old_version));
    CHECK(out == part(pattern(50'000, 1), 77, 1000));
    const auto new_version = stat_blocking(local.store(), "file")->version;
    REQUIRE(new_version != old_version);
    REQUIRE(read_blocking(local.store(), "file", 77, out, new_version));
    CHECK(out == part(pattern(50'000, 2), 77, 1000));
    CHECK(code_of_read(local.store(), "file", 1000, old_version) == ErrorCode::object_changed);
  }
}

TEST_CASE("a file rewritten in place under its open handle is noticed within a second") {
  for (const auto backend : kBackends) {
    auto ops = std::make_unique<FaultyOps>();
    auto& extra_ns = ops->extra_ns;
    LocalFixture local(with_backend(backend), false, LocalIoSeams{std::move(ops)});
    local.put("file", pattern(50'000, 1));
    const auto version = stat_blocking(local.store(), "file")->version;
    Bytes out(1000);
    const Piece piece{7, out};
    REQUIRE(read_blocking(local.store(), "file", 7, out, version));
    local.put("file", pattern(50'000, 2));
    extra_ns = 2'000'000'000;
    auto now = local.store().read_now("file", version, std::span(&piece, 1), Wait::allowed);
    REQUIRE(!now);
    CHECK(now.error().code() == ErrorCode::object_changed);
    CHECK(code_of_read(local.store(), "file", 1000, version) == ErrorCode::object_changed);
    REQUIRE(read_blocking(local.store(), "file", 7, out,
                          stat_blocking(local.store(), "file")->version));
    CHECK(out == part(pattern(50'000, 2), 7, 1000));
  }
}

TEST_CASE("a file that is replaced again and again is never read in a mixture") {
  for (const auto backend : kBackends) {
    LocalFixture local(with_backend(backend), true);
    constexpr std::size_t kSize = 700'000;
    const std::vector<Bytes> versions = {pattern(kSize, 1), pattern(kSize, 2)};
    local.put("file", versions[0]);
    std::atomic<bool> reading = true;
    std::thread writer([&] {
      for (std::size_t i = 0; i < 400 && reading; ++i) {
        local.dir.write("next", versions[i % 2]);
        std::filesystem::rename(local.dir.path("next"), local.dir.path("file"));
      }
    });
    for (int i = 0; i < 60; ++i) {
      Bytes out(kSize - 100);
      auto outcome = read_blocking(local.store(), "file", 100, out);
      REQUIRE(outcome);
      const std::size_t which = out[0] == versions[0][100] ? 0 : 1;
      REQUIRE(std::equal(out.begin(), out.end(), versions[which].begin() + 100));
      // Whole and small, of a version that may be gone by now.
      local.store().stat("file", [&](Result<ObjectInfo> info) {
        REQUIRE(info);
        Bytes whole(kSize);
        auto again = read_blocking(local.store(), "file", 0, whole, info->version);
        if (again) {
          CHECK((whole == versions[0] || whole == versions[1]));
        } else {
          CHECK(again.error().code() == ErrorCode::object_changed);
        }
      });
    }
    reading = false;
    writer.join();
  }
}

TEST_CASE("depth and threads of one are enough") {
  for (const auto backend : kBackends) {
    DYNAMIC_SECTION((backend == IoBackend::uring ? "uring" : "threads")) {
      IoOptions options = with_backend(backend);
      options.depth = 1;
      options.threads = 1;
      options.handles_max = 1;
      store_conformance([&] { return std::make_unique<LocalFixture>(options, true); });
    }
  }
}

TEST_CASE("offsets near 2^63 and beyond the end are no bytes and no overflow") {
  for (const auto backend : kBackends) {
    LocalFixture local(with_backend(backend));
    REQUIRE(truncate(local.dir.write("sparse", "x").c_str(), std::int64_t{1} << 42) == 0);
    Bytes out(8192, std::byte{1});
    const std::uint64_t far = (std::uint64_t{1} << 42) - 4096;
    auto outcome = read_blocking(local.store(), "sparse", far, out);
    REQUIRE(outcome);
    CHECK(outcome->bytes == 4096);
    CHECK(part(out, 0, 4096) == Bytes(4096));
    for (const std::uint64_t offset :
         {std::uint64_t{1} << 62, (std::uint64_t{1} << 63) - 1, std::uint64_t{1} << 63}) {
      auto none = read_blocking(local.store(), "sparse", offset, out);
      REQUIRE(none);
      CHECK(none->bytes == 0);
    }
  }
}

TEST_CASE("a warm run is read by the caller and never reaches the backend") {
  LocalFixture local(IoOptions{});
  constexpr std::size_t kFiles = 200;
  for (std::size_t i = 0; i < kFiles; ++i) local.put("d/" + std::to_string(i), pattern(5000, i));
  local.put("large", pattern(4 << 20));
  Bytes out(5000);
  const Piece piece{0, out};
  for (std::size_t i = 0; i < kFiles; ++i) {
    const std::string name = "d/" + std::to_string(i);
    const auto version = stat_blocking(local.store(), name)->version;
    auto filled = local.store().read_now(name, version, std::span(&piece, 1), Wait::never);
    REQUIRE(filled);
    REQUIRE(*filled == 1);
    REQUIRE(out == pattern(5000, i));
    const Piece inside{i * 10'000, out};
    REQUIRE(*local.store().read_now("large", {}, std::span(&inside, 1), Wait::never) == 1);
  }
  const IoCounters counters = local.io->counters();
  CHECK(counters.warm_reads == 2 * kFiles);
  CHECK(counters.warm_bytes == 2 * kFiles * 5000);
  CHECK(counters.cold_reads == 0);
  CHECK(counters.ring_entries == 0);
  CHECK(counters.opens == kFiles + 1);
}

TEST_CASE("a cold run of small files pays few probes") {
  LocalFixture local(IoOptions{});
  constexpr std::size_t kFiles = 300;
  std::vector<ObjectVersion> versions;
  for (std::size_t i = 0; i < kFiles; ++i) {
    local.put("d/" + std::to_string(i), pattern(20'000, i));
    versions.push_back(stat_blocking(local.store(), "d/" + std::to_string(i))->version);
  }
  for (std::size_t i = 0; i < kFiles; ++i) make_cold(local.dir.path("d/" + std::to_string(i)));
  Bytes out(20'000);
  const Piece piece{0, out};
  std::size_t warm = 0;
  for (std::size_t i = 0; i < kFiles; ++i) {
    auto filled = local.store().read_now("d/" + std::to_string(i), versions[i],
                                         std::span(&piece, 1), Wait::never);
    REQUIRE(filled);
    warm += *filled;
  }
  if (warm > 0) HP_SKIP("this file system keeps pages that it was told to drop");
  CHECK(local.io->counters().probes <= 15);
}

TEST_CASE(
    "what is in the page cache is read without waiting, the pages that mark read-ahead included") {
  LocalFixture local(IoOptions{}, true);
  constexpr std::size_t kSize = 40 << 20;
  local.put("file", pattern(kSize));
  const auto version = stat_blocking(local.store(), "file")->version;
  Bytes out(1 << 20);
  for (std::size_t at = 0; at < kSize; at += out.size()) {
    const Piece piece{at, out};
    REQUIRE(*local.store().read_now("file", version, std::span(&piece, 1), Wait::allowed) == 1);
  }
  const UniqueFd fd(::open(local.dir.path("file").c_str(), O_RDONLY | O_CLOEXEC));
  const auto* mapped =
      static_cast<const char*>(mmap(nullptr, kSize, PROT_READ, MAP_SHARED, fd.get(), 0));
  REQUIRE(mapped != MAP_FAILED);
  const auto resident = [&](std::size_t offset, std::size_t size) {
    std::vector<unsigned char> pages((offset % 4096 + size + 4095) / 4096);
    mincore(const_cast<char*>(mapped) + offset / 4096 * 4096, offset % 4096 + size, pages.data());
    return std::all_of(pages.begin(), pages.end(),
                       [](unsigned char page) { return (page & 1) != 0; });
  };
  std::size_t asked = 0;
  Bytes small(150'528);
  for (std::size_t at = 0; at + small.size() < kSize; at += small.size()) {
    const bool there = resident(at, small.size());
    const Piece piece{at, small};
    const std::size_t filled =
        *local.store().read_now("file", version, std::span(&piece, 1), Wait::never);
    if (!there) break;  // the machine is short of memory
    ++asked;
    CHECK(filled == 1);
  }
  munmap(const_cast<char*>(mapped), kSize);
  CHECK(asked > 0);
}

TEST_CASE("memory file systems are warm") {
  if (!std::filesystem::exists("/dev/shm")) HP_SKIP("no /dev/shm");
  const auto io = make_local_io({}, nullptr);
  Uri root;
  root.path = "/dev/shm";
  const auto store = io->open(root);
  const std::string name = "headpond-test-" + std::to_string(getpid());
  const std::string path = "/dev/shm/" + name;
  std::ofstream(path) << "hello";
  Bytes out(5);
  const Piece piece{0, out};
  auto filled = store->read_now(name, {}, std::span(&piece, 1), Wait::never);
  unlink(path.c_str());
  REQUIRE(filled);
  CHECK(*filled == 1);
  CHECK(out == bytes_of("hello"));
}

TEST_CASE("a later chdir changes nothing for a store of the working directory") {
  const TempDir dir;
  dir.write("file", "here");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  const auto io = make_local_io({}, nullptr);
  const auto store = io->open(Uri{"file", "", "", ""});
  std::filesystem::current_path(before);
  Bytes out(4);
  REQUIRE(read_blocking(*store, "file", 0, out));
  CHECK(out == bytes_of("here"));
}
