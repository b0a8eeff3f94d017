#include "cache/space.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "base/digest.h"
#include "cache/space_fixture.h"
#include "headpond/result.h"
#include "support/in_child.h"

namespace headpond {
namespace {

struct SpaceTest {
  TempDir temp;
  std::string path = temp.path("cache");
  std::string file = path + "/v1/space";
};

void flip(const std::string& file, std::uint64_t offset) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  unsigned char byte = 0;
  REQUIRE(pread(fd, &byte, 1, static_cast<off_t>(offset)) == 1);
  byte ^= 0x10;
  REQUIRE(pwrite(fd, &byte, 1, static_cast<off_t>(offset)) == 1);
  ::close(fd);
}

}  // namespace

TEST_CASE("Space: what is reserved and published never exceeds the limit") {
  SpaceTest test;
  Opened own(test.path, 10 * kCell);
  Space& space = *own.space;
  CHECK_FALSE(space.reserve(11 * kCell));
  auto first = space.reserve(6 * kCell);
  REQUIRE(first);
  CHECK_FALSE(space.reserve(5 * kCell));
  CHECK(space.shortage(5 * kCell) == kCell);
  CHECK(space.shortage(4 * kCell) == 0);
  REQUIRE(own.publish(std::move(*first), key_of(1)));
  CHECK(space.usage().published_bytes == 6 * kCell);
  CHECK(space.usage().reserved_bytes == 0);
  CHECK_FALSE(space.reserve(5 * kCell));
  REQUIRE(own.remove(key_of(1), 6 * kCell));
  CHECK(space.reserve(10 * kCell));
  CHECK(space.reserve(10 * kCell));  // the last one returned
}

TEST_CASE("Space: a publication that fails gives its room back") {
  SpaceTest test;
  Opened own(test.path, 10 * kCell);
  REQUIRE(own.publish(key_of(1)));
  REQUIRE_FALSE(own.publish(key_of(1)));  // the name is taken
  CHECK(own.space->usage().published_bytes == kCell);
  CHECK(own.space->usage().reserved_bytes == 0);
  {
    // Between: the file is on the disk, and counted once.
    const Publication publication = own.space->publish(*own.space->reserve(4 * kCell), key_of(2));
    CHECK(own.space->usage().published_bytes + own.space->usage().reserved_bytes == 5 * kCell);
  }
  CHECK(own.space->usage().published_bytes == kCell);
  CHECK(own.space->usage().reserved_bytes == 0);
}

TEST_CASE("Space: a removal that fails leaves the block in the accounts and the log") {
  SpaceTest test;
  Opened own(test.path, 10 * kCell);
  REQUIRE(own.publish(key_of(1)));
  LogPlace place = own.space->log_end();
  own.ops->unlink_error = -EIO;
  CHECK_FALSE(own.remove(key_of(1)));
  CHECK(own.space->usage().published_bytes == kCell);
  std::vector<SpaceEvent> events;
  REQUIRE(own.space->follow(place, events));
  REQUIRE_FALSE(events.empty());
  CHECK(events.back() == SpaceEvent{key_of(1), kCell, true});
  own.ops->unlink_error = 0;
  CHECK(own.remove(key_of(1)));
  CHECK_FALSE(own.remove(key_of(1)));  // gone: nothing leaves twice
  CHECK(own.space->usage().published_bytes == 0);
}

TEST_CASE("Space: the smallest limit and the largest floor of a living process hold") {
  SpaceTest test;
  Opened own(test.path, 10 * kCell);
  {
    Child other([&](Child& self) {
      Opened small(test.path);
      small.space = *Space::open(small.folder, small.claims, {4 * kCell, 3 * kCell, {}});
      self.pause();
      return 0;
    });
    other.await();
    CHECK(own.space->usage().limit_bytes == 4 * kCell);
    CHECK(own.space->usage().floor_bytes == 3 * kCell);
    CHECK(own.space->usage().processes == 2);
    CHECK_FALSE(own.space->reserve(5 * kCell));
    CHECK(own.space->reserve(4 * kCell));
  }  // killed: its limit goes when somebody is short of room
  CHECK(own.space->reserve(5 * kCell));
  CHECK(own.space->usage().limit_bytes == 10 * kCell);
  CHECK(own.space->usage().floor_bytes == 0);
  CHECK(own.space->usage().processes == 1);
}

TEST_CASE("Space: the floor of free disk space is never crossed") {
  SpaceTest test;
  Opened own(test.path);
  own.space = *Space::open(own.folder, own.claims, {1000 * kCell, 5 * kCell, {}});
  own.count();
  own.ops->free_bytes = 8 * kCell;
  CHECK_FALSE(own.space->reserve(4 * kCell));
  CHECK(own.space->shortage(4 * kCell) == kCell);
  const auto room = own.space->reserve(2 * kCell);
  REQUIRE(room);
  CHECK_FALSE(own.space->reserve(2 * kCell));  // what is reserved will be on the disk
  CHECK(own.space->reserve(kCell));
  own.ops->free_bytes = 100 * kCell;
  CHECK(own.space->reserve(2 * kCell));
}

TEST_CASE("Space: a limit of nothing is refused, and one beyond the limit is never granted") {
  SpaceTest test;
  Opened own(test.path);
  const auto none = Space::open(own.folder, own.claims, {0, 0, {}});
  REQUIRE_FALSE(none);
  CHECK(none.error().code() == ErrorCode::invalid_argument);
}

TEST_CASE("Space: four processes that hammer it never hold more than the limit") {
  SpaceTest test;
  constexpr std::uint64_t kLimit = 24 * kCell;
  struct Counts {
    // Raised after a grant, lowered before it is given back: never above what is granted.
    std::atomic<std::int64_t> held = 0;
    std::atomic<std::uint64_t> highest = 0;
    std::atomic<int> grants = 0;
  };
  Shared<Counts> counts;
  const auto hold = [&](std::uint64_t bytes) {
    const auto now = static_cast<std::uint64_t>(counts->held += static_cast<std::int64_t>(bytes));
    std::uint64_t highest = counts->highest;
    while (highest < now && !counts->highest.compare_exchange_weak(highest, now)) {
    }
    ++counts->grants;
  };
  const auto let_go = [&](std::uint64_t bytes) {
    counts->held -= static_cast<std::int64_t>(bytes);
  };
  Opened observer(test.path, kLimit);
  std::vector<std::unique_ptr<Child>> children;
  for (unsigned seed = 0; seed < 4; ++seed) {
    children.push_back(std::make_unique<Child>([&, seed](Child&) {
      Opened own(test.path, kLimit);
      std::mt19937 random(seed);
      for (int i = 0; i < 3000; ++i) {
        const BlockKey key = key_of(random() % 16);
        const std::uint64_t bytes = (1 + key.digest.high % 3) * kCell;
        switch (random() % 4) {
          case 0: {
            auto room = own.space->reserve(bytes);
            if (!room) break;
            hold(bytes);
            std::vector<Reservation> some;
            some.push_back(std::move(*room));
            let_go(bytes);
            break;
          }
          case 1:
          case 2: {
            auto room = own.space->reserve(bytes);
            if (!room) break;
            const auto claim = own.claims.claim(key);
            hold(bytes);
            const CacheFd fill(*own.ops, own.folder->open_fill(key, O_RDWR | O_CREAT | O_EXCL));
            if (!fill) {
              let_go(bytes);
              break;
            }
            if (pwrite_all(*own.ops, fill.get(), std::vector<std::byte>(bytes), 0) != 0) return 1;
            Publication publication = own.space->publish(std::move(*room), key);
            if (own.folder->publish(key) == 0) {
              publication.renamed();
            } else {
              own.folder->remove_fill(key);
              let_go(bytes);
            }
            break;
          }
          default: {
            Removal removal = own.space->remove(key, bytes);
            const auto removed = own.folder->remove_block(key);
            if (!removed) return 2;
            let_go(*removed);
            *removed == 0 ? removal.gone() : removal.unlinked(*removed);
          }
        }
      }
      return 0;
    }));
  }
  // What an observer finds on the disk when all of them stand still somewhere.
  int still_running = 4;
  for (int i = 0; i < 200 && still_running > 0; ++i) {
    still_running = 0;
    for (auto& child : children) still_running += child->stop() ? 1 : 0;
    CHECK(observer.block_bytes() + observer.fill_bytes() <= kLimit);
    for (auto& child : children) child->go_on();
    std::this_thread::yield();
  }
  for (auto& child : children) CHECK(child->wait() == 0);
  CHECK(counts->highest <= kLimit);
  CHECK(counts->highest > kLimit - 4 * kCell);  // it was worth hammering
  CHECK(counts->grants > 1000);
  CHECK(observer.space->usage().published_bytes == observer.block_bytes());
  CHECK(observer.space->usage().reserved_bytes == 0);
  CHECK(static_cast<std::uint64_t>(counts->held.load()) == observer.block_bytes());
}

TEST_CASE("Space: processes killed at random instants leave nothing beyond the limit") {
  SpaceTest test;
  constexpr std::uint64_t kLimit = 16 * kCell;
  std::mt19937 random(7);
  Opened observer(test.path, kLimit);
  for (int round = 0; round < 60; ++round) {
    Shared<std::atomic<std::uint64_t>> steps;
    std::vector<std::unique_ptr<Child>> children;
    for (unsigned seed = 0; seed < 4; ++seed) {
      children.push_back(std::make_unique<Child>([&, seed, round](Child&) {
        Opened own(test.path);
        own.space = *Space::open(own.folder, own.claims, {kLimit, 0, {}});
        std::mt19937 choice(seed + 4 * static_cast<unsigned>(round));
        for (;;) {
          ++*steps;
          // Blocks of real files: header and payload.
          ObjectVersion version;
          version.size = 2 * kCell;
          const Block block =
              make_block({{"http://o/" + std::to_string(choice() % 12), version, {0, 2 * kCell}}});
          const std::uint64_t bytes = disk_bytes(*layout_of(block));
          if (choice() % 3 == 0) {
            own.remove(block.key, bytes);
            continue;
          }
          auto room = own.space->reserve(bytes);
          if (!room) continue;
          auto claim = own.claims.claim(block.key);
          auto begun = FillFile::begin(own.folder, block, std::move(*claim));
          if (!begun || !std::holds_alternative<std::unique_ptr<FillFile>>(*begun)) continue;
          const auto fill = std::get<std::unique_ptr<FillFile>>(*std::move(begun));
          if (!fill->write(0, std::vector<std::byte>(2 * kCell))) return 1;
          Publication publication = own.space->publish(std::move(*room), block.key);
          const auto published = fill->publish(nullptr);
          if (published && *published) publication.renamed();
        }
      }));
    }
    const std::uint64_t stop = random() % 200;
    while (*steps < stop) std::this_thread::yield();
    children[random() % 4]->kill();
    while (*steps < stop + random() % 20) std::this_thread::yield();
    for (auto& child : children) child->kill();

    CHECK(observer.block_bytes() + observer.fill_bytes() <= kLimit);
    CHECK(observer.space->usage().published_bytes >= observer.block_bytes());
    observer.space->reap();
    CHECK(observer.space->usage().reserved_bytes == 0);
    CHECK(observer.space->usage().processes == 1);
    CHECK(observer.space->usage().published_bytes >= observer.block_bytes());
    observer.count();
    CHECK(observer.space->usage().published_bytes == observer.block_bytes());
  }
}

TEST_CASE("Space: a kill between any two steps overstates until it is found") {
  // Where the child dies: 0 after reserving, 1 with a fill file, 2 in the total, 3 renamed, 4 all
  // done, 5 about to unlink, 6 unlinked.
  for (int death = 0; death <= 6; ++death) {
    INFO("death " << death);
    SpaceTest test;
    Opened own(test.path, 10 * kCell);
    REQUIRE(own.publish(key_of(1), 2 * kCell));
    {
      Child child([&](Child& self) {
        Opened dying(test.path, 10 * kCell);
        const auto die_at = [&](int place) {
          if (place == death) self.pause();
        };
        auto room = dying.space->reserve(3 * kCell);
        die_at(0);
        dying.make_fill(key_of(2), 3 * kCell);
        die_at(1);
        Publication publication = dying.space->publish(std::move(*room), key_of(2));
        die_at(2);
        if (dying.folder->publish(key_of(2)) != 0) return 1;
        die_at(3);
        publication.renamed();
        die_at(4);
        Removal removal = dying.space->remove(key_of(1), 2 * kCell);
        die_at(5);
        if (!dying.folder->remove_block(key_of(1))) return 1;
        die_at(6);
        return 2;
      });
      child.await();
      const auto now = own.space->usage();
      CHECK(now.published_bytes + now.reserved_bytes >= own.block_bytes() + own.fill_bytes());
    }
    LogPlace place = own.space->log_end();
    const auto before = own.space->usage();
    CHECK(before.published_bytes + before.reserved_bytes >= own.block_bytes() + own.fill_bytes());
    CHECK(own.space->reap());
    CHECK(own.space->usage().reserved_bytes == 0);
    CHECK(own.fill_names().empty());
    CHECK(own.space->usage().published_bytes >= own.block_bytes());
    // Cut off in an operation: followers are told that they may have missed it.
    const bool cut_off = death == 2 || death == 3 || death >= 5;
    std::vector<SpaceEvent> events;
    CHECK(own.space->wants_rescan() == cut_off);
    CHECK(own.space->follow(place, events) == !cut_off);
    own.count();
    CHECK_FALSE(own.space->wants_rescan());
    CHECK(own.space->usage().published_bytes == own.block_bytes());
  }
}

TEST_CASE("Space: room of the dead is given out again when it is needed") {
  SpaceTest test;
  Opened own(test.path, 10 * kCell);
  Child child([&](Child& self) {
    Opened dying(test.path, 10 * kCell);
    const auto room = dying.space->reserve(8 * kCell);
    dying.make_fill(key_of(2), 8 * kCell);
    self.pause();
    return 0;
  });
  child.await();
  CHECK_FALSE(own.space->reserve(8 * kCell));
  child.kill();
  CHECK(own.space->reserve(8 * kCell));
  CHECK(own.fill_names().empty());
}

TEST_CASE("Space: room of the dead stays taken while their files cannot be removed") {
  SpaceTest test;
  Opened own(test.path, 10 * kCell);
  Child child([&](Child& self) {
    Opened dying(test.path, 10 * kCell);
    const auto room = dying.space->reserve(8 * kCell);
    dying.make_fill(key_of(2), 8 * kCell);
    self.pause();
    return 0;
  });
  child.await();
  child.kill();
  own.ops->unlink_error = -EIO;
  CHECK_FALSE(own.space->reserve(8 * kCell));
  own.ops->unlink_error = 0;
  CHECK(own.space->reserve(8 * kCell));
}

TEST_CASE("Space: the accounts survive their processes") {
  SpaceTest test;
  {
    Opened own(test.path, 10 * kCell);
    REQUIRE(own.publish(key_of(1), 3 * kCell));
  }
  Opened again(test.path);
  again.space = *Space::open(again.folder, again.claims, {10 * kCell, 0, {}});
  CHECK(again.space->counted());
  CHECK_FALSE(again.space->wants_rescan());
  CHECK(again.space->usage().published_bytes == 3 * kCell);
  CHECK(again.space->usage().processes == 1);
}

TEST_CASE("Space: after a boot nothing is granted before a rescan has counted what is there") {
  SpaceTest test;
  {
    Opened own(test.path);
    own.space = *Space::open(own.folder, own.claims, {10 * kCell, 0, "boot 1"});
    own.count();
    REQUIRE(own.publish(key_of(1), 3 * kCell));
  }
  Opened own(test.path);
  own.make_fill(key_of(2), 2 * kCell);  // cut off by the power failure
  REQUIRE(own.folder->remove_block(key_of(1)));
  own.make_fill(key_of(3), kCell);
  REQUIRE(own.folder->publish(key_of(3)) == 0);
  own.space = *Space::open(own.folder, own.claims, {10 * kCell, 0, "boot 2"});
  CHECK_FALSE(own.space->counted());
  CHECK(own.space->wants_rescan());
  CHECK_FALSE(own.space->reserve(kCell));
  CHECK(own.fill_names().empty());
  own.count();
  CHECK(own.space->usage().published_bytes == kCell);
  CHECK(own.space->reserve(9 * kCell));
}

TEST_CASE("Space: a damaged or foreign file is counted anew, never trusted") {
  SpaceTest test;
  {
    Opened own(test.path, 10 * kCell);
    REQUIRE(own.publish(key_of(1), 3 * kCell));
  }
  const auto good = test.temp.read("cache/v1/space");
  const auto check = [&] {
    Opened own(test.path);
    auto opened = Space::open(own.folder, own.claims, {10 * kCell, 0, {}});
    REQUIRE(opened);
    own.space = *std::move(opened);
    CHECK_FALSE(own.space->counted());
    CHECK_FALSE(own.space->reserve(kCell));
    own.count();
    CHECK(own.space->usage().published_bytes == 3 * kCell);
    CHECK(own.space->usage().reserved_bytes == 0);
    CHECK(own.space->reserve(7 * kCell));
    CHECK_FALSE(own.space->reserve(8 * kCell));
  };
  for (std::uint64_t byte = 0; byte < 36; ++byte) {
    INFO("byte " << byte);
    test.temp.write("cache/v1/space", good);
    flip(test.file, byte);
    check();
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{100}}) {
    test.temp.write("cache/v1/space", std::string(size, 'x'));
    check();
  }
  test.temp.write("cache/v1/space", std::string(good.size() + 5000, 'x'));
  check();
}

TEST_CASE("Space: a file cut short is made whole without losing what is sure") {
  SpaceTest test;
  {
    Opened own(test.path, 10 * kCell);
    REQUIRE(own.publish(key_of(1), 3 * kCell));
  }
  test.temp.write("cache/v1/space", test.temp.read("cache/v1/space").substr(0, 100'000));
  Opened own(test.path, 10 * kCell);
  CHECK(own.space->usage().published_bytes == 3 * kCell);
}

TEST_CASE("Space: a file damaged under living processes is counted anew beside them") {
  SpaceTest test;
  Child living([&](Child& self) {
    Opened other(test.path, 10 * kCell);
    other.publish(key_of(1), 3 * kCell);
    const auto room = other.space->reserve(2 * kCell);
    self.pause();
    // Its own room still counts, and it goes on.
    return other.space->usage().reserved_bytes == 2 * kCell && other.publish(key_of(2)) ? 0 : 1;
  });
  living.await();
  flip(test.file, 3);
  Opened own(test.path);
  own.space = *Space::open(own.folder, own.claims, {10 * kCell, 0, {}});
  CHECK_FALSE(own.space->counted());
  CHECK(own.space->usage().processes == 2);
  own.count();
  CHECK(own.space->usage().published_bytes == 3 * kCell);
  CHECK(own.space->usage().reserved_bytes == 2 * kCell);
  LogPlace place = own.space->log_end();
  living.go();
  CHECK(living.wait() == 0);
  std::vector<SpaceEvent> events;
  REQUIRE(own.space->follow(place, events));
  CHECK(events == std::vector<SpaceEvent>{{key_of(2), kCell, true}});
  CHECK(own.space->usage().published_bytes == 4 * kCell);
}

TEST_CASE("Space: accounts of another version are left alone while they are used") {
  SpaceTest test;
  Child living([&](Child& self) {
    const Opened other(test.path, 10 * kCell);
    self.pause();
    return 0;
  });
  living.await();
  // Whole constants that say "hpspace2".
  std::string head = test.temp.read("cache/v1/space").substr(0, 36);
  head[7] = '2';
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(head).first(32)));
  std::memcpy(head.data() + 32, &crc, sizeof(crc));
  const int fd = ::open(test.file.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(pwrite(fd, head.data(), head.size(), 0) == 36);
  ::close(fd);
  Opened own(test.path);
  const auto opened = Space::open(own.folder, own.claims, {10 * kCell, 0, {}});
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code() == ErrorCode::unsupported);
  living.kill();
  CHECK(Space::open(own.folder, own.claims, {10 * kCell, 0, {}}));
}

TEST_CASE("Space: accounts that were deleted grant nothing more, new ones count anew") {
  SpaceTest test;
  Opened own(test.path, 10 * kCell);
  REQUIRE(own.publish(key_of(1), 4 * kCell));
  REQUIRE(unlink(test.file.c_str()) == 0);
  CHECK_FALSE(own.space->reserve(kCell));
  CHECK(in_child([&] {
          Opened fresh(test.path, 10 * kCell);
          return !fresh.space->reserve(7 * kCell) && fresh.space->reserve(6 * kCell) ? 0 : 1;
        }) == 0);
}

TEST_CASE("Space: a folder, a symbolic link or a full disk in its place is an error") {
  SpaceTest test;
  Opened own(test.path);
  SECTION("folder") { REQUIRE(mkdir(test.file.c_str(), 0700) == 0); }
  SECTION("link") {
    test.temp.write("elsewhere", "untouched");
    REQUIRE(symlink(test.temp.path("elsewhere").c_str(), test.file.c_str()) == 0);
  }
  SECTION("full") { own.ops->write_error = -ENOSPC; }
  const auto opened = Space::open(own.folder, own.claims, {10 * kCell, 0, {}});
  REQUIRE_FALSE(opened);
  if (test.temp.read("elsewhere").empty()) return;
  CHECK(test.temp.read("elsewhere") == "untouched");
}

namespace {

// Another process, which holds locks on bytes of the accounts until it is killed.
class ByteHolder {
 public:
  ByteHolder(const SpaceTest& test, std::uint64_t first, std::uint64_t bytes)
      : child_([&](Child& self) {
          Opened own(test.path);
          const int fd = ::open(test.file.c_str(), O_RDWR | O_CLOEXEC);
          if (own.ops->set_lock(fd, F_WRLCK, first, bytes) != 0) return 1;
          self.pause();
          return 0;
        }) {
    child_.await();
  }
  void kill() { child_.kill(); }

 private:
  Child child_;
};

}  // namespace

TEST_CASE("Space: opening waits for another opener, but not for ever") {
  SpaceTest test;
  { const Opened made(test.path, 10 * kCell); }
  ByteHolder other(test, 0, 1);
  Opened own(test.path);
  own.ops->step_ns = 1'000'000'000;
  const auto opened = Space::open(own.folder, own.claims, {10 * kCell, 0, {}});
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code() == ErrorCode::timed_out);
  other.kill();
  CHECK(Space::open(own.folder, own.claims, {10 * kCell, 0, {}}));
}

TEST_CASE("Space: more processes than slots are told so") {
  SpaceTest test;
  { const Opened made(test.path, 10 * kCell); }
  const ByteHolder others(test, 4096, 1024);
  Opened own(test.path);
  const auto opened = Space::open(own.folder, own.claims, {10 * kCell, 0, {}});
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code() == ErrorCode::resource_limit);
}

TEST_CASE("Space: followers hear of everything once and in order") {
  SpaceTest test;
  Opened own(test.path, 1000 * kCell);
  LogPlace place = own.space->log_end();
  std::vector<std::unique_ptr<Child>> children;
  constexpr std::uint64_t kEach = 500;
  for (std::uint64_t child = 0; child < 3; ++child) {
    children.push_back(std::make_unique<Child>([&, child](Child&) {
      Opened other(test.path, 1000 * kCell);
      for (std::uint64_t i = 0; i < kEach; ++i) {
        const BlockKey key = key_of(kEach * child + i);
        if (!other.publish(key)) return 1;
        if (i % 2 == 0 && !other.remove(key)) return 2;
      }
      return 0;
    }));
  }
  std::vector<SpaceEvent> events;
  while (events.size() < 3 * kEach * 3 / 2) {
    REQUIRE(own.space->follow(place, events));
    std::this_thread::yield();
  }
  for (auto& child : children) CHECK(child->wait() == 0);
  REQUIRE(own.space->follow(place, events));
  CHECK(events.size() == 3 * kEach * 3 / 2);
  std::map<BlockKey, int> seen;
  for (const SpaceEvent& event : events) {
    const bool comes_back = event.published && seen.count(event.key) != 0;
    CHECK_FALSE(comes_back);
    seen[event.key] += event.published ? 1 : 10;
  }
  std::uint64_t there = 0;
  for (const auto& [key, times] : seen) {
    CHECK((times == 1 || times == 11));
    there += times == 1;
  }
  CHECK(there == own.listed().size());
}

TEST_CASE("Space: a follower that lags a whole log behind is told to rescan") {
  SpaceTest test;
  Opened own(test.path, 10 * kCell);
  LogPlace late = own.space->log_end();
  for (std::uint64_t i = 0; i < 32'768; ++i) own.space->remove(key_of(i), kCell).gone();
  std::vector<SpaceEvent> events;
  LogPlace just_in_time = late;
  REQUIRE(own.space->follow(just_in_time, events));
  CHECK(events.size() == 32'768);
  own.space->remove(key_of(1), kCell).gone();
  CHECK_FALSE(own.space->follow(late, events));
  events.clear();
  REQUIRE(own.space->follow(just_in_time, events));
  CHECK(events.size() == 1);
}

TEST_CASE("Space: a mend waits until nobody is in mid-operation") {
  SpaceTest test;
  Opened own(test.path, 10 * kCell);
  REQUIRE(own.publish(key_of(1)));
  own.space->distrust();
  CHECK(own.space->wants_rescan());
  {
    Removal removal = own.space->remove(key_of(1), kCell);
    CHECK_FALSE(own.space->mend(own.space->log_end(), kCell));
  }
  LogPlace old = own.space->log_end();
  REQUIRE(own.publish(key_of(2)));
  CHECK_FALSE(own.space->mend(old, kCell));  // something happened since
  CHECK(own.space->mend(own.space->log_end(), 2 * kCell));
  CHECK_FALSE(own.space->wants_rescan());
  CHECK(own.space->usage().published_bytes == 2 * kCell);
}

TEST_CASE("Space: files removed behind its back are found by the next rescan") {
  SpaceTest test;
  Opened own(test.path, 10 * kCell);
  REQUIRE(own.publish(key_of(1), 4 * kCell));
  REQUIRE(own.publish(key_of(2), 4 * kCell));
  REQUIRE(own.folder->remove_block(key_of(1)));
  own.space->distrust();
  CHECK_FALSE(own.space->reserve(6 * kCell));
  own.count();
  CHECK(own.space->reserve(6 * kCell));
}

TEST_CASE("Space: a forked child owns nothing and takes nothing") {
  SpaceTest test;
  Opened own(test.path, 10 * kCell);
  auto room = own.space->reserve(4 * kCell);
  REQUIRE(room);
  const auto before = own.space->usage();
  CHECK(in_child([&] {
          const bool refused = !own.space->reserve(kCell) && own.space->shortage(kCell) != 0;
          room.reset();
          own.space->remove(key_of(1), kCell).unlinked(kCell);
          own.space->distrust();
          own.space->reap();
          own.space.reset();
          // A cache of its own works.
          Opened fresh(test.path, 10 * kCell);
          const bool granted = fresh.space->reserve(6 * kCell).has_value();
          return refused && granted && !fresh.space->reserve(7 * kCell) ? 0 : 1;
        }) == 0);
  const auto after = own.space->usage();
  CHECK(after.reserved_bytes == before.reserved_bytes);
  CHECK(after.published_bytes == before.published_bytes);
  CHECK(after.limit_bytes == before.limit_bytes);
  CHECK_FALSE(own.space->wants_rescan());
  CHECK_FALSE(own.space->reserve(7 * kCell));
  room.reset();
  CHECK(own.space->reserve(10 * kCell));
}

TEST_CASE("Space: threads of one process share its slot") {
  SpaceTest test;
  Opened own(test.path, 8 * kCell);
  std::atomic<std::int64_t> held = 0;
  std::atomic<bool> beyond = false;
  std::vector<std::thread> threads;
  for (std::uint64_t number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      LogPlace place = own.space->log_end();
      std::vector<SpaceEvent> events;
      for (int i = 0; i < 2000; ++i) {
        auto room = own.space->reserve(3 * kCell);
        if (!room) continue;
        if ((held += 3) > 8) beyond = true;
        held -= 3;
        if (i % 2 == 0) continue;
        const BlockKey key = key_of(number);
        {
          Publication publication = own.space->publish(std::move(*room), key);
          if (i % 4 == 1) publication.renamed();
          if (i % 4 != 1) continue;
        }
        own.space->remove(key, 3 * kCell).unlinked(3 * kCell);
        own.space->mend(place, 0);
        own.space->follow(place, events);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK_FALSE(beyond);
  CHECK(own.space->usage().reserved_bytes == 0);
  CHECK(own.space->reserve(2 * kCell));
}

}  // namespace headpond
