#include "cache/eviction.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "cache/space_fixture.h"
#include "support/eviction_simulator.h"

namespace headpond {
namespace {

struct EvictionTest {
  explicit EvictionTest(std::uint64_t blocks) : own(path, blocks * kCell) {
    REQUIRE(eviction.rescan(nullptr));
  }

  // Published blocks 0.., each used at the given position (one loader, a position a second).
  void fill(const std::vector<std::uint64_t>& positions) {
    std::vector<NextUse> uses;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      REQUIRE(own.publish(key_of(i)));
      uses.push_back({key_of(i), positions[i]});
    }
    writer = *this->uses.create(uses, {});
  }
  std::set<std::uint64_t> kept() const {
    std::set<std::uint64_t> numbers;
    for (const auto& [key, bytes] : own.listed()) numbers.insert(key.digest.high >> 40);
    return numbers;
  }
  std::optional<Reservation> room(std::uint64_t bytes, std::uint64_t next) {
    auto made = eviction.make_room(bytes, {key_of(1000), writer.get(), next});
    REQUIRE(made);
    return *std::move(made);
  }

  TempDir temp;
  std::string path = temp.path("cache");
  Opened own;
  UseFiles uses{own.folder};
  std::unique_ptr<UseWriter> writer;
  Eviction eviction{own.folder, *own.space, uses};
};

using Numbers = std::set<std::uint64_t>;

}  // namespace

TEST_CASE("Eviction: nothing goes while there is room") {
  EvictionTest test(5);
  test.fill({1, 2, 3, 4});
  CHECK(test.room(kCell, 100));
  CHECK(test.kept() == Numbers{0, 1, 2, 3});
}

TEST_CASE("Eviction: the block whose next use is last goes first, one never used before all") {
  EvictionTest test(5);
  test.fill({30, kNeverUsed, 10, 50, 40});
  std::vector<Reservation> rooms;
  const std::vector<Numbers> expected = {{0, 2, 3, 4}, {0, 2, 4}, {0, 2}, {2}};
  for (const Numbers& kept : expected) {
    auto room = test.room(kCell, 20);
    REQUIRE(room);
    rooms.push_back(std::move(*room));
    CHECK(test.kept() == kept);
  }
  // What remains is needed sooner than the incoming one.
  CHECK_FALSE(test.room(kCell, 20));
  CHECK(test.kept() == Numbers{2});
  CHECK(test.eviction.counts().refused == 1);
  CHECK(test.eviction.counts().evicted_blocks == 4);
  CHECK(test.eviction.counts().evicted_bytes == 4 * kCell);
}

TEST_CASE("Eviction: blocks of no living loader go before those of one") {
  EvictionTest test(4);
  test.fill({30, 10});
  REQUIRE(test.own.publish(key_of(7)));
  REQUIRE(test.own.publish(key_of(8)));
  const auto first = test.room(kCell, 20);
  const auto second = test.room(kCell, 20);
  CHECK((first && second));
  CHECK(test.kept() == Numbers{0, 1});
}

TEST_CASE("Eviction: what nobody will use displaces nothing") {
  EvictionTest test(2);
  test.fill({10, kNeverUsed});
  CHECK_FALSE(test.room(kCell, kNeverUsed));
  CHECK(test.kept() == Numbers{0, 1});
}

TEST_CASE("Eviction: all that is needed goes, and nothing more") {
  EvictionTest test(10);
  test.fill({10, 20, 30, 40, 50, 60, 70, 80});
  CHECK(test.room(5 * kCell, 1));  // two are free
  CHECK(test.kept() == Numbers{0, 1, 2, 3, 4});
}

TEST_CASE("Eviction: nothing goes when not all that is needed is worth it") {
  EvictionTest test(8);
  test.fill({10, 20, 30, 40, 50, 60, 70, 80});
  CHECK_FALSE(test.room(4 * kCell, 60));
  CHECK(test.kept().size() == 8);
  CHECK_FALSE(test.room(9 * kCell, 1));  // could never fit
  CHECK(test.kept().size() == 8);
  CHECK(test.room(2 * kCell, 60));
  CHECK(test.kept().size() == 6);
}

TEST_CASE("Eviction: blocks differ in size") {
  EvictionTest test(10);
  REQUIRE(test.own.publish(key_of(0), kCell));
  REQUIRE(test.own.publish(key_of(1), 6 * kCell));
  REQUIRE(test.own.publish(key_of(2), 3 * kCell));
  test.writer = *test.uses.create(
      std::vector<NextUse>{{key_of(0), 30}, {key_of(1), 20}, {key_of(2), 10}}, {});
  CHECK(test.room(3 * kCell, 1));
  CHECK(test.kept() == Numbers{2});
  CHECK(test.own.space->usage().published_bytes == 3 * kCell);
}

TEST_CASE("Eviction: a disk that frees late costs twice what is needed at most") {
  EvictionTest test(10);
  test.fill({10, 20, 30, 40, 50, 60, 70, 80, 90, 100});
  // Readers have everything open: what is removed stays on the disk.
  test.own.space.reset();
  test.own.space = *Space::open(test.own.folder, test.own.claims, {10 * kCell, 5 * kCell, {}});
  Eviction eviction(test.own.folder, *test.own.space, test.uses);
  REQUIRE(eviction.rescan(nullptr));
  test.own.ops->free_bytes = 5 * kCell;
  const auto made = eviction.make_room(kCell, {key_of(1000), test.writer.get(), 1});
  REQUIRE(made);
  CHECK_FALSE(*made);
  CHECK(test.kept().size() == 8);
  REQUIRE(eviction.shrink(nullptr));
  CHECK(test.kept().size() == 8);  // the floor holds
  test.own.ops->free_bytes = 2 * kCell;
  REQUIRE(eviction.shrink(nullptr));
  CHECK(test.kept() == Numbers{0, 1, 2, 3, 4});
}

TEST_CASE("Eviction: a smaller limit is reached by shrinking, the soonest stay") {
  EvictionTest test(10);
  test.fill({10, 20, 30, 40, 50, 60, 70, 80, 90, 100});
  REQUIRE(test.eviction.shrink(nullptr));
  CHECK(test.kept().size() == 10);
  Child other([&](Child& self) {
    Opened small(test.path);
    small.space = *Space::open(small.folder, small.claims, {4 * kCell, 0, {}});
    self.pause();
    return 0;
  });
  other.await();
  CHECK_FALSE(test.room(kCell, 200));  // not worth it
  CHECK(test.kept().size() == 10);
  CHECK_FALSE(test.eviction.shrink([] { return false; }));
  REQUIRE(test.eviction.shrink(nullptr));
  CHECK(test.kept() == Numbers{0, 1, 2, 3});
  test.own.ops->unlink_error = -EROFS;
  Child smaller([&](Child& self) {
    Opened small(test.path);
    small.space = *Space::open(small.folder, small.claims, {kCell, 0, {}});
    self.pause();
    return 0;
  });
  smaller.await();
  for (int i = 0; i < 3; ++i) static_cast<void>(test.eviction.shrink(nullptr));
  CHECK(test.kept().size() == 4);
}

TEST_CASE("Eviction: a reader keeps the bytes of a block that goes") {
  EvictionTest test(1);
  test.fill({50});
  const CacheFd open(*test.own.ops, test.own.folder->open_block(key_of(0)));
  REQUIRE(open);
  REQUIRE(test.room(kCell, 1));
  CHECK(test.kept().empty());
  std::vector<std::byte> bytes(kCell);
  CHECK(pread_all(*test.own.ops, open.get(), bytes, 0) == static_cast<ssize_t>(kCell));
}

TEST_CASE("Eviction: a file system that refuses is asked a few times and not again") {
  EvictionTest test(20);
  std::vector<std::uint64_t> positions(20);
  std::iota(positions.begin(), positions.end(), 100);
  test.fill(positions);
  for (const int error : {-EIO, -EROFS, -EACCES}) {
    test.own.ops->unlink_error = error;
    test.own.ops->unlinks = 0;
    const auto made = test.eviction.make_room(kCell, {key_of(1000), test.writer.get(), 1});
    CHECK_FALSE(made);
    CHECK(test.own.ops->unlinks == 4);
  }
  CHECK(test.eviction.counts().failed_removals == 12);
  CHECK(test.kept().size() == 20);
  CHECK(test.own.space->usage().published_bytes == 20 * kCell);
  // The ones that failed are left alone: others go.
  test.own.ops->unlink_error = 0;
  CHECK(test.room(kCell, 1));
  CHECK(test.kept().count(7) == 0);
  CHECK(test.kept().size() == 19);
  // A rescan forgets that.
  REQUIRE(test.eviction.rescan(nullptr));
  const auto room = test.room(2 * kCell, 1);
  CHECK(test.kept().count(19) == 0);
}

TEST_CASE("Eviction: a block that somebody else has removed frees nothing, and the next one goes") {
  EvictionTest test(3);
  test.fill({10, 20, 30});
  CHECK(test.eviction.make_room(0, {key_of(1000), test.writer.get(), 1}));
  REQUIRE(test.own.folder->remove_block(key_of(2)));  // behind the accounts' back
  CHECK(test.room(kCell, 1));
  CHECK(test.kept() == Numbers{0});
  CHECK(test.eviction.counts().gone == 1);
  CHECK(test.own.space->usage().published_bytes == 2 * kCell);  // overstated until a rescan
  test.own.space->distrust();
  CHECK(test.eviction.wants_rescan());
  REQUIRE(test.eviction.rescan(nullptr));
  CHECK(test.own.space->usage().published_bytes == kCell);
}

TEST_CASE("Eviction: only what the cache made is deleted") {
  EvictionTest test(3);
  test.fill({10, 20, 30});
  const std::string leaf = "cache/v1/blocks/00/00/";
  test.temp.write(leaf + "precious.txt", "mine");
  test.temp.write(leaf + "0123456789abcdef0123456789abcdef", "in the wrong folder");
  test.temp.write("cache/v1/blocks/precious.txt", "mine");
  REQUIRE(symlink("/etc/passwd",
                  test.temp.path(leaf + "0000ffffffffffff0000000000000000").c_str()) == 0);
  REQUIRE(mkdir(test.temp.path(leaf + "0000eeeeeeeeeeee0000000000000000").c_str(), 0700) == 0);
  REQUIRE(test.eviction.rescan(nullptr));
  CHECK(test.room(3 * kCell, 1));
  CHECK(test.kept().empty());
  CHECK(test.temp.read(leaf + "precious.txt") == "mine");
  CHECK(test.temp.read(leaf + "0123456789abcdef0123456789abcdef") == "in the wrong folder");
  CHECK(test.temp.read("cache/v1/blocks/precious.txt") == "mine");
  struct stat info = {};
  CHECK(lstat(test.temp.path(leaf + "0000ffffffffffff0000000000000000").c_str(), &info) == 0);
  CHECK(lstat(test.temp.path(leaf + "0000eeeeeeeeeeee0000000000000000").c_str(), &info) == 0);
}

TEST_CASE("Eviction: without a listing nothing goes, and one is asked for") {
  EvictionTest test(3);
  test.fill({10, 20, 30});
  Eviction fresh(test.own.folder, *test.own.space, test.uses);
  CHECK_FALSE(fresh.wants_rescan());  // nobody was short of room
  const auto made = fresh.make_room(kCell, {key_of(1000), test.writer.get(), 1});
  REQUIRE(made);
  CHECK_FALSE(*made);
  CHECK(fresh.wants_rescan());
  CHECK_FALSE(fresh.rescan([] { return false; }));  // stopped
  CHECK(fresh.wants_rescan());
  REQUIRE(fresh.rescan(nullptr));
  CHECK_FALSE(fresh.wants_rescan());
  CHECK(fresh.counts().listed_blocks == 3);
  const auto again = fresh.make_room(kCell, {key_of(1000), test.writer.get(), 1});
  REQUIRE(again);
  CHECK(*again);
}

TEST_CASE("Eviction: blocks that other processes publish and remove are known without a rescan") {
  EvictionTest test(6);
  test.fill({10, 20, 30});
  Child other([&](Child&) {
    Opened own(test.path, 6 * kCell);
    return own.publish(key_of(5)) && own.publish(key_of(6)) && own.remove(key_of(2)) &&
                   own.publish(key_of(7))
               ? 0
               : 1;
  });
  CHECK(other.wait() == 0);
  // Two free after all; the ones that nobody uses go first.
  CHECK(test.room(4 * kCell, 15));
  CHECK(test.kept() == Numbers{0, 1});
  CHECK(test.eviction.counts().gone == 0);
}

TEST_CASE("Eviction: who was left behind by the log goes on with what it knows, and asks") {
  EvictionTest test(4);
  test.fill({10, 20, 30, 40});
  test.own.space->distrust();
  CHECK(test.room(kCell, 1));
  CHECK(test.kept() == Numbers{0, 1, 2});
  CHECK(test.eviction.wants_rescan());
  REQUIRE(test.eviction.rescan(nullptr));
  CHECK_FALSE(test.eviction.wants_rescan());
}

TEST_CASE("Eviction: processes that make room at once remove what they need together, no more") {
  EvictionTest test(64);
  std::vector<std::uint64_t> positions(64);
  std::iota(positions.begin(), positions.end(), 100);
  test.fill(positions);
  std::vector<std::unique_ptr<Child>> children;
  for (int number = 0; number < 4; ++number) {
    children.push_back(std::make_unique<Child>([&](Child& self) {
      Opened own(test.path);
      own.space = *Space::open(own.folder, own.claims, {64 * kCell, 0, {}});
      UseFiles uses(own.folder);
      Eviction eviction(own.folder, *own.space, uses);
      const auto writer = *uses.create(std::vector<NextUse>{{key_of(1000), 1}}, {});
      if (!eviction.rescan(nullptr)) return 1;
      self.pause();
      std::vector<Reservation> rooms;
      for (int i = 0; i < 10; ++i) {
        auto made = eviction.make_room(kCell, {key_of(1000), writer.get(), 1});
        if (!made) return 2;
        if (!*made) continue;
        rooms.push_back(std::move(**made));
      }
      self.pause();
      return rooms.size() == 10 ? 0 : 3;
    }));
  }
  for (auto& child : children) child->await();
  for (auto& child : children) child->go();
  for (auto& child : children) child->await();
  const Numbers kept = test.kept();
  CHECK(test.own.space->usage().published_bytes + test.own.space->usage().reserved_bytes <=
        64 * kCell);
  for (auto& child : children) child->go();
  for (auto& child : children) CHECK(child->wait() == 0);
  // Two that refuse each other at the same instant may each find one more than there was need for.
  CHECK(kept.size() >= 24 - 4);
  CHECK(kept.size() <= 24);
  // The soonest are kept.
  CHECK(*kept.rbegin() == kept.size() - 1);
}

TEST_CASE("Eviction: a rescan beside busy processes ends with what is there") {
  EvictionTest test(4000);
  Shared<std::atomic<bool>> stop;
  std::vector<std::unique_ptr<Child>> children;
  for (unsigned seed = 0; seed < 3; ++seed) {
    children.push_back(std::make_unique<Child>([&, seed](Child& self) {
      Opened own(test.path);
      own.space = *Space::open(own.folder, own.claims, {4000 * kCell, 0, {}});
      std::mt19937 random(seed);
      self.tell();
      while (!*stop) {
        const BlockKey key = key_of(300 * seed + random() % 300);
        if (random() % 2 == 0)
          own.publish(key);
        else
          own.remove(key);
      }
      return 0;
    }));
  }
  for (auto& child : children) child->await();
  for (int i = 0; i < 10; ++i) REQUIRE(test.eviction.rescan(nullptr));
  *stop = true;
  for (auto& child : children) CHECK(child->wait() == 0);
  CHECK(test.own.space->usage().published_bytes == test.own.block_bytes());
  // What the log told since is applied at the next choice.
  CHECK_FALSE(test.eviction.wants_rescan());
  CHECK_FALSE(test.room(4001 * kCell, 1));
  REQUIRE(test.eviction.rescan(nullptr));
  CHECK(test.eviction.counts().listed_blocks == test.own.listed().size());
}

namespace {

// The orders of a loader over some epochs: each block `uses` times an epoch, shuffled.
simulation::Job shuffled_job(std::uint32_t blocks, int epochs, int uses, unsigned seed,
                             std::uint32_t speed = 1) {
  simulation::Job job;
  job.speed = speed;
  std::mt19937 random(seed);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    std::vector<std::uint32_t> order;
    for (int use = 0; use < uses; ++use)
      for (std::uint32_t block = 0; block < blocks; ++block) order.push_back(block);
    std::shuffle(order.begin(), order.end(), random);
    job.blocks.insert(job.blocks.end(), order.begin(), order.end());
  }
  return job;
}

// Steps the simulated and the real cache side by side.
void check_agreement(const simulation::Trace& trace, std::size_t capacity) {
  simulation::NextUse simulated(trace, capacity);
  EvictionTest test(capacity);
  std::vector<std::unique_ptr<UseWriter>> writers;
  for (std::uint32_t job = 0; job < trace.jobs.size(); ++job) {
    std::vector<NextUse> uses;
    for (std::uint32_t block = 0; block < trace.blocks; ++block)
      uses.push_back({key_of(block), simulated.next(job, block)});
    writers.push_back(*test.uses.create(uses, {}));
    writers.back()->advance(0, trace.jobs[job].speed);
  }
  const auto there = [&](std::uint32_t block) {
    return bool{CacheFd(*test.own.ops, test.own.folder->open_block(key_of(block)))};
  };
  std::uint64_t evicted = 0, kept = 0;
  for (std::size_t step = 0; step < trace.accesses.size(); ++step) {
    const auto [job, block] = trace.accesses[step];
    UseWriter& writer = *writers[job];
    const std::vector<bool> before = simulated.kept();
    const bool simulated_hit = simulated.access(step, {job, block});
    const std::vector<bool>& after = simulated.kept();
    writer.used(block, simulated.next(job, block));
    writer.advance(simulated.cursor(job), trace.jobs[job].speed);
    const bool hit = there(block);
    INFO("step " << step);
    REQUIRE(hit == simulated_hit);
    if (!hit) {
      auto room =
          test.eviction.make_room(kCell, {key_of(block), &writer, simulated.next(job, block)});
      REQUIRE(room);
      REQUIRE(room->has_value() == simulated.kept()[block]);
      if (*room) REQUIRE(test.own.publish(std::move(**room), key_of(block)));
    }
    // The same victim, and no other.
    for (std::uint32_t i = 0; i < trace.blocks; ++i)
      if (before[i] && !after[i]) REQUIRE_FALSE(there(i));
    if (!hit && after[block]) ++(kept < capacity ? kept : evicted);
    REQUIRE(test.eviction.counts().evicted_blocks == evicted);
  }
}

}  // namespace

TEST_CASE("Eviction: one job agrees with the simulated policy block for block") {
  check_agreement(simulation::Trace::of(60, {shuffled_job(60, 10, 3, 1)}), 30);
}

TEST_CASE("Eviction: jobs of one and of several seeds and speeds agree with the simulated policy") {
  check_agreement(simulation::Trace::of(40, {shuffled_job(40, 8, 2, 1), shuffled_job(40, 8, 2, 1)}),
                  20);
  check_agreement(
      simulation::Trace::of(40, {shuffled_job(40, 6, 2, 1), shuffled_job(40, 6, 2, 2),
                                 shuffled_job(40, 18, 2, 3, 3), shuffled_job(40, 6, 2, 4)}),
      10);
}

TEST_CASE("Eviction: with many blocks the batches agree with the simulated ones") {
  // 2,100 blocks are kept: the farthest two are taken for two choices.
  check_agreement(simulation::Trace::of(2500, {shuffled_job(2500, 3, 1, 1)}), 2100);
}

TEST_CASE("Simulation: the optimum of small caches is what trying everything finds") {
  std::minstd_rand random(5);
  for (int round = 0; round < 60; ++round) {
    simulation::Job job;
    for (int i = 0; i < 14; ++i) job.blocks.push_back(static_cast<std::uint32_t>(random() % 5));
    const auto trace = simulation::Trace::of(5, {job});
    const std::size_t capacity = 1 + random() % 3;
    // Hits of the best choices from `step` on, by what is kept (a bit a block).
    const std::function<int(std::size_t, unsigned)> best = [&](std::size_t step, unsigned kept) {
      if (step == job.blocks.size()) return 0;
      const unsigned block = 1u << job.blocks[step];
      if ((kept & block) != 0) return 1 + best(step + 1, kept);
      int found = best(step + 1, kept);  // bypass
      const unsigned with = kept | block;
      if (static_cast<std::size_t>(__builtin_popcount(with)) <= capacity)
        return std::max(found, best(step + 1, with));
      for (unsigned victim = 1; victim < 32; victim <<= 1)
        if ((kept & victim) != 0) found = std::max(found, best(step + 1, with & ~victim));
      return found;
    };
    const auto outcome =
        simulation::replay(trace, 0, trace.accesses.size(), simulation::Optimum(trace, capacity));
    REQUIRE(outcome.hits == static_cast<std::uint64_t>(best(0, 0)));
  }
}

TEST_CASE("Simulation: for one job the next use is the optimum") {
  const auto trace = simulation::Trace::of(50, {shuffled_job(50, 12, 4, 9)});
  for (const std::size_t capacity : {1u, 10u, 25u, 40u, 49u}) {
    const std::size_t steps = trace.accesses.size();
    const auto ours = simulation::replay(trace, 0, steps, simulation::NextUse(trace, capacity));
    const auto best = simulation::replay(trace, 0, steps, simulation::Optimum(trace, capacity));
    CHECK(ours.hits == best.hits);
  }
}

TEST_CASE("Eviction: threads may make room, rescan and ask at once") {
  EvictionTest test(16);
  std::vector<std::uint64_t> positions(16);
  std::iota(positions.begin(), positions.end(), 100);
  test.fill(positions);
  std::atomic<bool> failed = false;
  std::vector<std::thread> threads;
  for (std::uint64_t number = 0; number < 3; ++number) {
    threads.emplace_back([&, number] {
      for (std::uint64_t i = 0; i < 200; ++i) {
        const BlockKey key = key_of(100 + number);
        auto made = test.eviction.make_room(kCell, {key, test.writer.get(), 1});
        if (!made || (*made && !test.own.publish(std::move(**made), key))) failed = true;
        test.own.remove(key);
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    REQUIRE(test.eviction.rescan(nullptr));
    static_cast<void>(test.eviction.counts());
  }
  for (auto& thread : threads) thread.join();
  CHECK_FALSE(failed);
  CHECK(test.own.space->usage().published_bytes == test.own.block_bytes());
}

}  // namespace headpond
