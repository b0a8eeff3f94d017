// The small parts of io: names for messages, handles, the memory of what is cold.

#include <fcntl.h>
#include <sys/wait.h>

#include <vector>

#include "io/cold_map.h"
#include "io/fork_mark.h"
#include "io/handle_cache.h"
#include "io/in_flight.h"
#include "io/local_root.h"
#include "io/text.h"
#include "support/catch.h"

using namespace headpond;

namespace {

std::shared_ptr<FileHandle> handle_of(std::uint64_t inode) {
  auto handle = std::make_shared<FileHandle>();
  handle->fd = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  handle->version.size = 1;
  handle->version.inode = inode;
  return handle;
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

}  // namespace

TEST_CASE("printable keeps UTF-8 and escapes every other byte and all controls") {
  CHECK(printable("a/b.jpg") == "a/b.jpg");
  CHECK(printable("Grüße 写真 😀") == "Grüße 写真 😀");
  CHECK(printable("a\nb\x1b[31m\x7f") == "a\\x0ab\\x1b[31m\\x7f");
  CHECK(printable("\xff\xfe") == "\\xff\\xfe");
  CHECK(printable("\xC3") == "\\xc3");                    // cut off
  CHECK(printable("\xC0\xAF") == "\\xc0\\xaf");           // overlong "/"
  CHECK(printable("\xED\xA0\x80") == "\\xed\\xa0\\x80");  // a surrogate
  CHECK(printable("\xC2\x9B") == "\\xc2\\x9b");           // C1: starts an escape sequence
  CHECK(printable(std::string_view("\0", 1)) == "\\x00");
}

TEST_CASE("CPath joins root and name, and refuses what does not fit") {
  CPath path;
  CHECK(std::string(path.join("/a", "b/c")) == "/a/b/c");
  CHECK(std::string(path.join("", "b")) == "/b");
  CHECK(std::string(path.join("", "")) == "/");
  CHECK(std::string(path.join("/a", "")) == "/a");
  CHECK(path.join("/a", std::string(PATH_MAX - 4, 'x')) != nullptr);
  CHECK(path.join("/a", std::string(PATH_MAX - 3, 'x')) == nullptr);
}

TEST_CASE("HandleCache closes the longest unused first and never more than it must") {
  HandleCache cache(3);
  std::vector<int> fds;
  for (std::uint64_t i = 0; i < 3; ++i) {
    auto handle = handle_of(i);
    fds.push_back(handle->fd.get());
    cache.insert(1, "f" + std::to_string(i), std::move(handle));
  }
  CHECK(cache.find(1, "f0") != nullptr);  // now f1 is the longest unused
  cache.insert(1, "f3", handle_of(3));
  CHECK(cache.size() == 3);
  CHECK(cache.find(1, "f1") == nullptr);
  CHECK(cache.find(2, "f0") == nullptr);
  CHECK(is_open(fds[0]));
  CHECK(cache.evict(10) == 3);
  CHECK(!is_open(fds[0]));
  CHECK(cache.evict(1) == 0);
}

TEST_CASE("HandleCache: a handle in use outlives its eviction") {
  HandleCache cache(1);
  auto used = cache.insert(1, "a", handle_of(1));
  const int fd = used->fd.get();
  cache.insert(1, "b", handle_of(2));
  CHECK(is_open(fd));
  used.reset();
  CHECK(!is_open(fd));
}

TEST_CASE("HandleCache keeps the first handle of a version and takes a newer version") {
  HandleCache cache(4);
  const auto first = cache.insert(1, "a", handle_of(1));
  CHECK(cache.insert(1, "a", handle_of(1)) == first);
  const auto newer = handle_of(2);
  CHECK(cache.insert(1, "a", newer) == newer);
  CHECK(cache.find(1, "a") == newer);
  cache.erase(1, "a", first);
  CHECK(cache.find(1, "a") == newer);
  cache.insert(2, "a", handle_of(3));
  cache.erase_root(1);
  CHECK(cache.find(1, "a") == nullptr);
  CHECK(cache.find(2, "a") != nullptr);
}

TEST_CASE("ColdMap: a cold run probes about once per 64 reads") {
  ColdMap map;
  const auto spot = ColdMap::folder(1, "train/a.jpg");
  int probes = 0;
  for (int i = 0; i < 64 * 20; ++i) {
    if (!map.should_probe(spot)) continue;
    ++probes;
    map.was_cold(spot);
  }
  CHECK(probes >= 20);
  CHECK(probes <= 27);
}

TEST_CASE("ColdMap: a warm run always probes, and one warm answer ends a cold run") {
  ColdMap map;
  const auto spot = ColdMap::region(77, 0);
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(map.should_probe(spot));
    map.was_warm(spot);
  }
  for (int i = 0; i < 1000; ++i) {
    if (map.should_probe(spot)) map.was_cold(spot);
  }
  int unasked = 0;
  while (!map.should_probe(spot)) ++unasked;
  CHECK(unasked <= 63);
  map.was_warm(spot);
  for (int i = 0; i < 100; ++i) CHECK(map.should_probe(spot));
}

TEST_CASE("ColdMap: a folder without answers of its own follows the store's") {
  ColdMap map;
  int probes = 0;
  for (int i = 0; i < 2000; ++i) {  // one file in each folder
    const auto spot = ColdMap::folder(1, "d" + std::to_string(i) + "/x");
    if (!map.should_probe(spot)) continue;
    ++probes;
    map.was_cold(spot);
  }
  CHECK(probes <= 100);
}

TEST_CASE("ColdMap: files of one folder share a spot, regions of a file do not") {
  CHECK(ColdMap::folder(1, "a/b/x").own == ColdMap::folder(1, "a/b/y").own);
  CHECK(ColdMap::folder(1, "a/b/x").own != ColdMap::folder(1, "a/c/x").own);
  CHECK(ColdMap::folder(1, "a/b/x").own != ColdMap::folder(2, "a/b/x").own);
  CHECK(ColdMap::region(5, 0).own == ColdMap::region(5, ColdMap::kRegionBytes - 1).own);
  CHECK(ColdMap::region(5, 0).own != ColdMap::region(5, ColdMap::kRegionBytes).own);
}

TEST_CASE("InFlight: after close gave up, a late done is refused") {
  InFlight in_flight;
  REQUIRE(in_flight.enter(2));
  REQUIRE(in_flight.begin_done());
  in_flight.end_done();
  CHECK(in_flight.close(std::chrono::nanoseconds(1)) == 1);
  CHECK(!in_flight.begin_done());
  CHECK(!in_flight.enter(1));
  CHECK(in_flight.close(std::chrono::hours(1)) == 0);
}

TEST_CASE("ForkMark tells the child and not the parent") {
  const ForkMark mark;
  CHECK(!mark.forked());
  const pid_t child = fork();
  if (child == 0) _exit(mark.forked() ? 7 : 8);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(!mark.forked());
}
