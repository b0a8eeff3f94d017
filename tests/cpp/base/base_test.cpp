#include <signal.h>

#include <filesystem>
#include <fstream>

#include "base/cpus.h"
#include "base/digest.h"
#include "base/thread.h"
#include "headpond/log.h"
#include "headpond/object_version.h"
#include "support/catch.h"

using namespace headpond;

TEST_CASE("ObjectVersion: an expected version accepts what agrees with all it knows") {
  ObjectVersion expected{.size = 10, .mtime_ns = 5, .inode = 7, .etag = {}};
  CHECK(expected.accepts({.size = 10, .mtime_ns = 5, .inode = 7, .etag = {}}));
  CHECK(!expected.accepts({.size = 10, .mtime_ns = 6, .inode = 7, .etag = {}}));
  CHECK(!expected.accepts({.size = 11, .mtime_ns = 5, .inode = 7, .etag = {}}));
  CHECK(ObjectVersion{}.accepts(expected));
}

TEST_CASE("digest: known answers") {
  CHECK(digest("").hex() == "99aa06d3014798d86001c324468d497f");           // XXH3-128 of nothing
  CHECK(crc32c(std::as_bytes(std::span("123456789", 9))) == 0xE3069283u);  // RFC 3720, B.4
  const auto whole = std::as_bytes(std::span("hello, headpond", 15));
  CHECK(crc32c(whole.subspan(5), crc32c(whole.first(5))) == crc32c(whole));
}

TEST_CASE("crc32c: with and without vector instructions, any length, place and seed give one sum") {
  std::vector<std::byte> bytes(10'000);
  std::uint32_t state = 1;
  for (auto& byte : bytes) byte = static_cast<std::byte>((state = state * 1664525u + 1) >> 24);
  const auto all = std::span<const std::byte>(bytes);
  // Every length up to a few of the short parts, then around the long ones.
  for (std::size_t size = 0; size < 1200; ++size) {
    const auto part = all.subspan(size % 9, size);
    CHECK(crc32c(part, state) == crc32c_plain(part, state));
    state = state * 1664525u + 1013904223u;
  }
  for (const std::size_t size : {4072u, 4079u, 4080u, 4081u, 4095u, 4096u, 4097u, 8160u, 9999u}) {
    for (const std::uint32_t seed : {0u, 1u, 0x80000000u, 0xFFFFFFFFu, state}) {
      CHECK(crc32c(all.first(size), seed) == crc32c_plain(all.first(size), seed));
      CHECK(crc32c(all.subspan(size), crc32c(all.first(size), seed)) == crc32c_plain(all, seed));
    }
  }
}

TEST_CASE("DigestBuilder: where parts are cut matters") {
  CHECK(DigestBuilder().add("ab").add("c").finish() != DigestBuilder().add("a").add("bc").finish());
}

TEST_CASE("Thread: runs with every signal blocked") {
  int blocked = -1;
  {
    auto thread = Thread::start({.name = "hp-test-0"}, [&] {
      sigset_t mask;
      pthread_sigmask(SIG_SETMASK, nullptr, &mask);
      blocked = sigismember(&mask, SIGINT) + sigismember(&mask, SIGCHLD);
    });
    REQUIRE(thread);
  }
  CHECK(blocked == 2);
}

TEST_CASE("cpus: the cgroup's quota counts, and is rounded up") {
  const auto root =
      std::filesystem::temp_directory_path() / ("hp-cgroup-" + std::to_string(getpid()));
  std::filesystem::create_directories(root);
  std::ofstream(root / "cpu.max") << "50000 100000\n";
  std::ofstream(root / "memory.max") << "268435456\n";
  CHECK(usable_cpus(root) == 1);
  CHECK(usable_memory_bytes(root) == 268435456u);
  std::ofstream(root / "cpu.max") << "max 100000\n";
  CHECK(usable_cpus(root) >= 1);
  std::filesystem::remove_all(root);
  CHECK(usable_memory_bytes("/nonexistent") > 0);
}

TEST_CASE("LogQueue: a flood is cut and counted, and once means once") {
  LogQueue log;
  for (int i = 0; i < 3; ++i) log.push_once(LogLevel::warning, "key", "text");
  CHECK(log.drain().size() == 1);
  for (int i = 0; i < 2000; ++i) log.push(LogLevel::info, "x");
  const auto records = log.drain();
  CHECK(records.size() == 1025);
  CHECK(records.back().text == "976 further messages were dropped");
}
