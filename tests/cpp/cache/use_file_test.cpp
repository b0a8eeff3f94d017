#include "cache/use_file.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <thread>

#include "cache/space_fixture.h"
#include "support/in_child.h"

namespace headpond {
namespace {

struct UseTest {
  TempDir temp;
  std::string path = temp.path("cache");
  Opened own{path};
  UseFiles uses{own.folder};

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    REQUIRE(own.ops->list(own.folder->use(), [&](const char* name) {
      names.emplace_back(name);
      return true;
    }) == 0);
    return names;
  }
};

std::vector<NextUse> uses_of(std::initializer_list<std::pair<std::uint64_t, std::uint64_t>> list) {
  std::vector<NextUse> uses;
  for (const auto& [key, position] : list) uses.push_back({key_of(key), position});
  return uses;
}

// A process with a use file of its own, until it is told to go on.
Child other_loader(const std::string& path, std::vector<NextUse> blocks, std::uint64_t cursor,
                   double rate, UseOptions options = {}) {
  return Child([=](Child& self) {
    Opened other(path);
    UseFiles uses(other.folder);
    const auto writer = uses.create(blocks, options);
    if (!writer) return 1;
    (*writer)->advance(cursor, rate);
    self.pause();
    (*writer)->used(0, 5000);
    (*writer)->advance(cursor + 100, rate);
    self.pause();
    return 0;
  });
}

}  // namespace

TEST_CASE("UseFiles: what nobody has listed is never used") {
  UseTest test;
  CHECK(test.uses.seconds_until(key_of(1)) == kNever);
  const auto writer = *test.uses.create(uses_of({{1, kNeverUsed}}), {});
  CHECK(test.uses.seconds_until(key_of(1)) == kNever);
  CHECK(test.uses.size() == 1);
}

TEST_CASE("UseFiles: distance is positions by rate, and nothing lies behind the cursor") {
  UseTest test;
  const auto writer = *test.uses.create(uses_of({{3, 700}, {1, 100}, {2, 400}}), {});
  writer->advance(100, 50);
  CHECK(test.uses.seconds_until(key_of(3)) == 12);
  CHECK(test.uses.seconds_until(key_of(1)) == 0);
  CHECK(test.uses.seconds_until(key_of(2)) == 6);
  writer->used(0, 1100);  // by the order in which they were listed
  writer->advance(500, 100);
  CHECK(test.uses.seconds_until(key_of(3)) == 6);
  CHECK(test.uses.seconds_until(key_of(1)) == 0);
  CHECK(test.uses.seconds_until(key_of(2)) == 0);
  CHECK(test.uses.seconds_until(key_of(1), writer.get(), 900) == 4);
}

TEST_CASE("UseFiles: of several loaders the one that comes first counts, in seconds") {
  UseTest test;
  const auto slow = *test.uses.create(uses_of({{1, 10}, {2, 10}}), {});
  slow->advance(0, 1);
  const auto fast = *test.uses.create(uses_of({{1, 500}, {3, 600}}), {});
  fast->advance(0, 100);
  CHECK(test.uses.seconds_until(key_of(1)) == 5);
  CHECK(test.uses.seconds_until(key_of(2)) == 10);
  CHECK(test.uses.seconds_until(key_of(3)) == 6);
  // What follows the use at hand replaces what stands in the loader's own file only.
  CHECK(test.uses.seconds_until(key_of(1), fast.get(), kNeverUsed) == 10);
  CHECK(test.uses.seconds_until(key_of(1), slow.get(), 1) == 1);
}

TEST_CASE("UseFiles: a loader without a rate is as fast as the mean of the others") {
  UseTest test;
  const auto unknown = *test.uses.create(uses_of({{1, 60}}), {});
  CHECK(test.uses.seconds_until(key_of(1)) == 60);
  const auto a = *test.uses.create(uses_of({{2, 1}}), {});
  const auto b = *test.uses.create(uses_of({{2, 1}}), {});
  a->advance(0, 10);
  b->advance(0, 20);
  CHECK(test.uses.seconds_until(key_of(1)) == 4);
  for (const double wrong : {-1.0, std::nan(""), kNever}) {
    unknown->advance(0, wrong);
    CHECK(test.uses.seconds_until(key_of(1)) == 4);
  }
}

TEST_CASE("UseFiles: other processes' loaders are seen as they move, and gone when they end") {
  UseTest test;
  Child other = other_loader(test.path, uses_of({{1, 1000}, {2, 2000}}), 0, 100);
  other.await();
  CHECK(test.uses.seconds_until(key_of(1)) == kNever);  // nobody has looked
  test.uses.refresh();
  CHECK(test.uses.seconds_until(key_of(1)) == 10);
  other.go();
  other.await();
  CHECK(test.uses.seconds_until(key_of(1)) == 49);
  CHECK(test.uses.seconds_until(key_of(2)) == 19);
  SECTION("it ends") {
    other.go();
    CHECK(other.wait() == 0);
    CHECK(test.names().empty());
  }
  SECTION("it is killed") {
    other.kill();
    CHECK(test.names().size() == 1);
  }
  test.uses.refresh();
  CHECK(test.uses.seconds_until(key_of(1)) == kNever);
  CHECK(test.uses.size() == 0);
  CHECK(test.names().empty());
}

TEST_CASE("UseFiles: a process does not lose its own files by looking") {
  UseTest test;
  const auto writer = *test.uses.create(uses_of({{1, 10}}), {});
  for (int i = 0; i < 3; ++i) test.uses.refresh();
  CHECK(in_child([&] {
          Opened other(test.path);
          UseFiles uses(other.folder);
          uses.refresh();
          return uses.seconds_until(key_of(1)) == 10 ? 0 : 1;
        }) == 0);
  CHECK(test.names().size() == 1);
  test.uses.refresh();
  CHECK(test.uses.size() == 1);
}

TEST_CASE("UseFiles: a forked child neither writes nor removes its parent's file") {
  UseTest test;
  auto writer = *test.uses.create(uses_of({{1, 10}}), {});
  CHECK(in_child([&] {
          writer->used(0, 99);
          writer->advance(5, 1);
          const bool refused = !test.uses.create(uses_of({{1, 1}}), {});
          test.uses.refresh();
          writer.reset();
          return refused ? 0 : 1;
        }) == 0);
  CHECK(test.uses.seconds_until(key_of(1)) == 10);
  CHECK(test.names().size() == 1);
  writer.reset();
  CHECK(test.names().empty());
}

TEST_CASE("UseFiles: damaged files are ignored, and removed when their process is dead") {
  UseTest test;
  // What a child makes of its whole file while it lives.
  const std::function<void(int)> damages[] = {
      [](int fd) { CHECK(ftruncate(fd, 10) == 0); },
      [](int fd) { CHECK(ftruncate(fd, 64 + 24) == 0); },  // fewer entries than it says
      [](int fd) { CHECK(pwrite(fd, "x", 1, 0) == 1); },   // magic
      [](int fd) { CHECK(pwrite(fd, "x", 1, 8) == 1); },   // count
      [](int fd) { CHECK(pwrite(fd, "x", 1, 36) == 1); },  // its checksum
      [](int fd) { CHECK(ftruncate(fd, 0) == 0); },
  };
  for (const auto& damage : damages) {
    Child child([&](Child& self) {
      Opened other(test.path);
      UseFiles uses(other.folder);
      const auto writer = uses.create(uses_of({{1, 1}, {2, 2}}), {});
      self.pause();
      return 0;
    });
    child.await();
    const std::string name = test.names().at(0);
    const int fd = ::open((test.path + "/v1/use/" + name).c_str(), O_RDWR | O_CLOEXEC);
    damage(fd);
    ::close(fd);
    test.uses.refresh();
    CHECK(test.uses.size() == 0);
    CHECK(test.uses.seconds_until(key_of(1)) == kNever);
    CHECK(test.names().size() == 1);  // it lives
    child.kill();
    test.uses.refresh();
    CHECK(test.names().empty());
  }
}

TEST_CASE("UseFiles: what is not of our naming is left alone") {
  UseTest test;
  test.temp.write("cache/v1/use/notes.txt", "mine");
  test.temp.write("cache/v1/use/0123456789abcdef0123456789abcde", "31 digits");
  test.temp.write("cache/v1/use/0123456789abcdef0123456789abcdef", "dead: nobody has it locked");
  test.uses.refresh();
  CHECK(test.uses.size() == 0);
  CHECK(test.temp.read("cache/v1/use/notes.txt") == "mine");
  CHECK(test.names().size() == 2);
}

TEST_CASE("UseFiles: a full disk is an error that leaves nothing") {
  UseTest test;
  test.own.ops->write_error = -ENOSPC;
  const auto writer = test.uses.create(uses_of({{1, 1}}), {});
  REQUIRE_FALSE(writer);
  CHECK(writer.error().code() == ErrorCode::resource_limit);
  CHECK(test.names().empty());
  test.own.ops->write_error = 0;
  CHECK(test.uses.create(uses_of({{1, 1}}), {}));
}

TEST_CASE("UseFiles: many distances at once are those of each alone") {
  UseTest test;
  std::mt19937_64 random(3);
  std::vector<std::unique_ptr<UseWriter>> writers;
  // Shorter and longer than the list of blocks, with gaps on both sides.
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{40}, std::size_t{3000}}) {
    std::set<BlockKey> keys;
    while (keys.size() < count) keys.insert(key_of(random() % 4000));
    std::vector<NextUse> blocks;
    for (const BlockKey& key : keys) blocks.push_back({key, random() % 1000});
    std::shuffle(blocks.begin(), blocks.end(), random);
    writers.push_back(*test.uses.create(blocks, {}));
    writers.back()->advance(random() % 500, static_cast<double>(1 + random() % 9));
  }
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{300}, std::size_t{2500}}) {
    std::set<BlockKey> keys;
    while (keys.size() < count) keys.insert(key_of(random() % 4000));
    const std::vector<BlockKey> blocks(keys.begin(), keys.end());
    std::vector<double> seconds(blocks.size());
    test.uses.seconds_until(blocks, seconds);
    for (std::size_t i = 0; i < blocks.size(); ++i)
      REQUIRE(seconds[i] == test.uses.seconds_until(blocks[i]));
  }
}

TEST_CASE("UseFiles: an opaque order spreads its blocks evenly over an epoch, and keeps to it") {
  UseTest test;
  constexpr std::uint64_t kBlocks = 4000;
  std::vector<NextUse> blocks;
  for (std::uint64_t i = 0; i < kBlocks; ++i) blocks.push_back({key_of(i), kNeverUsed});
  const auto writer = *test.uses.create(blocks, {true, 10'000});
  writer->advance(0, 100);
  std::vector<int> tenths(10);
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    const double seconds = test.uses.seconds_until(key_of(i));
    REQUIRE(seconds > 0);
    REQUIRE(seconds <= 100);
    ++tenths[std::min<std::size_t>(9, static_cast<std::size_t>(seconds / 10))];
    CHECK(seconds == test.uses.seconds_until(key_of(i), writer.get(), 1));
  }
  for (const int count : tenths) CHECK(std::abs(count - 400) < 100);
  CHECK(test.uses.seconds_until(key_of(kBlocks)) == kNever);
  const auto another = *test.uses.create(blocks, {true, 10'000});
  another->advance(0, 1e-6);  // far beyond the first, so that the minimum is the first's
  const double before = test.uses.seconds_until(key_of(1));
  another->advance(0, 1e6);
  CHECK(test.uses.seconds_until(key_of(1)) < before);
}

TEST_CASE("UseFiles: a file that was never finished is removed") {
  UseTest test;
  // A header that stops before its magic, as a kill in create() leaves it.
  test.temp.write("cache/v1/use/0123456789abcdef0123456789abcdef", std::string(64 + 24, '\0'));
  test.uses.refresh();
  CHECK(test.names().empty());
}

TEST_CASE("UseFiles: processes that create and look at once never lose a living file") {
  UseTest test;
  std::vector<std::unique_ptr<Child>> children;
  for (std::uint64_t number = 0; number < 3; ++number) {
    children.push_back(std::make_unique<Child>([&, number](Child&) {
      Opened other(test.path);
      UseFiles uses(other.folder);
      for (int i = 0; i < 150; ++i) {
        const auto writer = uses.create(uses_of({{number, 7}}), {});
        uses.refresh();
        // Ours is seen by a fresh look of ours; its name is still there.
        if (!writer || uses.seconds_until(key_of(number)) != 7) return 1;
        int named = 0;
        other.ops->list(other.folder->use(), [&](const char*) { return ++named, true; });
        if (named == 0) return 2;
      }
      return 0;
    }));
  }
  for (int i = 0; i < 300; ++i) test.uses.refresh();
  for (auto& child : children) CHECK(child->wait() == 0);
  test.uses.refresh();
  CHECK(test.uses.size() == 0);
  CHECK(test.names().empty());
}

TEST_CASE("UseFiles: threads may write, read, create and look at once") {
  UseTest test;
  auto writer = *test.uses.create(uses_of({{1, 1}, {2, 2}}), {});
  const auto list = uses_of({{3, 3}});
  std::atomic<bool> stop = false, refused = false;
  std::thread writing([&] {
    for (std::uint64_t i = 1; i < 20'000; ++i) {
      writer->used(i % 2, i + 2);
      writer->advance(i, 1);
    }
    stop = true;
  });
  std::thread creating([&] {
    while (!stop)
      if (!test.uses.create(list, {})) refused = true;
  });
  const std::vector<BlockKey> blocks = {key_of(1), key_of(2), key_of(3)};
  std::vector<double> seconds(3);
  while (!stop) {
    test.uses.refresh();
    test.uses.seconds_until(blocks, seconds);
    // The acquire of the cursor: never a use from before it.
    CHECK(seconds[0] <= 20'000);
    CHECK(test.uses.seconds_until(key_of(1)) <= 20'000);
  }
  writing.join();
  creating.join();
  CHECK_FALSE(refused);
  CHECK(test.uses.size() == 1);
}

}  // namespace headpond
