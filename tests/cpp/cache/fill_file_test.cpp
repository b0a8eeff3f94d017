#include "cache/fill_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "cache/cache_fixture.h"
#include "support/in_child.h"

using namespace headpond;
namespace fs = std::filesystem;

namespace {

// A forked child that does `body`, tells it, and stays until it is killed.
class Holder {
 public:
  explicit Holder(const std::function<void()>& body) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    child_ = ::fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      ::alarm(60);
      body();
      static_cast<void>(::write(ends[1], "x", 1));
      for (;;) ::pause();
    }
    ::close(ends[1]);
    char byte = 0;
    REQUIRE(::read(ends[0], &byte, 1) == 1);
    ::close(ends[0]);
  }
  ~Holder() { kill(); }
  void kill() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = 0;
  }

 private:
  pid_t child_ = 0;
};

// In a child: its own folder, and a fill file with the first `bytes` of the block written.
std::unique_ptr<FillFile> fill_in_child(const std::string& root, const Block& block,
                                        std::size_t bytes) {
  static FillClaims claims;
  const auto folder = CacheFolder::open(root, std::make_shared<CacheOps>());
  auto begun = FillFile::begin(*folder, block, *claims.claim(block.key));
  auto file = std::get<std::unique_ptr<FillFile>>(*std::move(begun));
  if (bytes > 0) static_cast<void>(file->write(0, part(payload_of(block), 0, bytes)));
  return file;
}

template <class T>
bool holds(const Result<FillBegin>& begun) {
  return begun && std::holds_alternative<T>(*begun);
}

}  // namespace

TEST_CASE("FillFile: a block that is filled and published is read by everybody") {
  TestCache cache;
  const Block block = test_block(10'000);
  CHECK(!cache.open(block));
  const auto file = cache.fill(block);
  CHECK(file->missing() == std::vector<ByteRange>{{0, 10'000}});
  REQUIRE(file->write(0, payload_of(block)));
  CHECK(!cache.open(block));
  CHECK(file->complete());
  int told = 0;
  CHECK(*file->publish([&] {
    ++told;
    CHECK(!cache.open(block));
  }));
  CHECK(told == 1);
  CHECK(cache.get(block) == payload_of(block));
  CHECK(!fs::exists(cache.fill_path(block.key)));
}

TEST_CASE("FillFile: cells may come in any order and be read as soon as they are there") {
  TestCache cache;
  std::mt19937 random(3);
  for (const std::uint64_t size : {1ull, 4095ull, 4096ull, 4097ull, 50'000ull, 3'000'000ull}) {
    const Block block = test_block(size);
    const Bytes payload = payload_of(block);
    const auto file = cache.fill(block);
    while (!file->complete()) {
      const auto missing = file->missing();
      const ByteRange range = missing[random() % missing.size()];
      const std::uint64_t cells = (range.size() + 4095) / 4096;
      const std::uint64_t first = random() % cells;
      const std::uint64_t count = 1 + random() % (cells - first);
      const std::uint64_t start = range.start + first * 4096;
      const std::uint64_t stop = std::min(range.stop, start + count * 4096);
      CHECK(!file->has({start, stop}));
      REQUIRE(file->write(start, std::span(payload).subspan(start, stop - start)));
      CHECK(file->has({start, stop}));
      Bytes bytes(stop - start);
      const Piece piece{start, bytes};
      REQUIRE(file->read({&piece, 1}));
      CHECK(bytes == part(payload, start, bytes.size()));
      std::uint64_t left = 0;
      for (const auto& hole : file->missing()) left += hole.size();
      CHECK(file->whole_bytes() == size - left);
    }
    CHECK(*file->publish(nullptr));
    CHECK(cache.get(block) == payload);
    // Its own reader goes on.
    Bytes bytes(1);
    const Piece piece{size - 1, bytes};
    CHECK(file->read({&piece, 1}));
    cache.folder->remove_block(block.key).value();
  }
}

TEST_CASE("FillFile: what is not whole cells, not there or not complete is refused") {
  TestCache cache;
  const Block block = test_block(10'000);
  const auto file = cache.fill(block);
  const Bytes payload = payload_of(block);
  const auto refused = [&](std::uint64_t offset, std::size_t size) {
    const Bytes bytes(size);
    const auto written = file->write(offset, bytes);
    return !written && written.error().code() == ErrorCode::invalid_argument;
  };
  CHECK(refused(1, 4096));
  CHECK(refused(0, 4095));
  CHECK(refused(0, 9999));
  CHECK(refused(8192, 1807));
  CHECK(refused(8192, 4096));
  CHECK(refused(12'288, 0));
  CHECK(refused(~0ull << 12, 4096));
  CHECK(file->whole_bytes() == 0);
  REQUIRE(file->write(4096, std::span(payload).subspan(4096, 4096)));
  Bytes bytes(4096);
  for (const std::uint64_t offset : {0ull, 4095ull, 4097ull, 9000ull, ~0ull}) {
    const Piece piece{offset, bytes};
    CHECK(!file->read({&piece, 1}));
  }
  const auto published = file->publish([] { FAIL("nothing is renamed"); });
  REQUIRE(!published);
  CHECK(published.error().code() == ErrorCode::internal);
}

TEST_CASE("FillFile: one descriptor in a process, one filler among processes") {
  TestCache cache;
  const Block block = test_block(100'000);
  {
    const auto file = cache.fill(block);
    CHECK(!cache.claims.claim(block.key));
    CHECK(cache.claims.claim(test_block(1).key));
  }
  CHECK(cache.claims.claim(block.key));
  const auto holder =
      std::make_unique<Holder>([&] { fill_in_child(cache.root(), block, 8192).release(); });
  for (int turn = 0; turn < 3; ++turn) {
    CHECK(holds<FillBusy>(cache.begin(block)));
    CHECK(cache.claims.claim(block.key));
  }
  CHECK(*remove_dead_fills(*cache.folder, cache.claims) == 0);
  // A forked child of ours that ends takes no lock of anybody with it.
  const Block ours = test_block(50'000, "ours");
  const auto file = cache.fill(ours);
  CHECK(in_child([] { return 0; }) == 0);
  CHECK(in_child([&] {
          FillClaims claims;
          const auto folder = *CacheFolder::open(cache.root(), std::make_shared<CacheOps>());
          return holds<FillBusy>(FillFile::begin(folder, ours, *claims.claim(ours.key))) ? 0 : 1;
        }) == 0);
}

TEST_CASE("FillFile: whoever waits sees whether the holder writes") {
  TestCache cache;
  const Block block = test_block(1 << 20);
  int to_child[2], to_parent[2];
  REQUIRE(::pipe(to_child) == 0);
  REQUIRE(::pipe(to_parent) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);
    const auto file = fill_in_child(cache.root(), block, 0);
    char byte = 0;
    for (std::uint64_t at = 0; at < block.bytes(); at += 65'536) {
      if (::write(to_parent[1], "x", 1) != 1 || ::read(to_child[0], &byte, 1) != 1) ::_exit(1);
      static_cast<void>(file->write(at, part(payload_of(block), at, 65'536)));
    }
    static_cast<void>(::write(to_parent[1], "x", 1));
    for (;;) ::pause();
  }
  const auto stamp = [&] {
    auto begun = cache.begin(block);
    REQUIRE(holds<FillBusy>(begun));
    return std::get<FillBusy>(*begun).stamp;
  };
  char byte = 0;
  REQUIRE(::read(to_parent[0], &byte, 1) == 1);
  FillStamp last = stamp();
  for (std::uint64_t at = 0; at < block.bytes(); at += 65'536) {
    CHECK(stamp() == last);
    REQUIRE(::write(to_child[1], "x", 1) == 1);
    REQUIRE(::read(to_parent[0], &byte, 1) == 1);
    CHECK(!(stamp() == last));
    last = stamp();
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) ::close(fd);
}

TEST_CASE("FillFile: a dead filler's whole cells are taken over") {
  TestCache cache;
  const Block block = test_block(100'000);
  Holder holder([&] { fill_in_child(cache.root(), block, 8 * 4096).release(); });
  CHECK(holds<FillBusy>(cache.begin(block)));
  holder.kill();
  const auto file = cache.fill(block);
  CHECK(file->whole_bytes() == 8 * 4096);
  CHECK(file->missing() == std::vector<ByteRange>{{8 * 4096, 100'000}});
  const Bytes payload = payload_of(block);
  REQUIRE(file->write(8 * 4096, std::span(payload).subspan(8 * 4096)));
  CHECK(*file->publish(nullptr));
  CHECK(cache.get(block) == payload);
}

TEST_CASE("FillFile: of a damaged predecessor only what is right is taken") {
  TestCache cache;
  const Block block = test_block(2 * 4096 + 300);
  const Bytes payload = payload_of(block);
  {
    const auto file = cache.fill(block);
    REQUIRE(file->write(0, std::span(payload).first(4096)));
    REQUIRE(file->write(8192, std::span(payload).subspan(8192)));
  }
  const Bytes left = read_file(cache.fill_path(block.key));
  const auto go_on = [&](const Bytes& found) {
    write_file(cache.fill_path(block.key), found);
    const auto file = cache.fill(block);
    const std::uint64_t taken = file->whole_bytes();
    for (const ByteRange range : file->missing())
      REQUIRE(file->write(range.start, std::span(payload).subspan(range.start, range.size())));
    REQUIRE(*file->publish(nullptr));
    CHECK(cache.get(block) == payload);
    cache.folder->remove_block(block.key).value();
    return taken;
  };
  CHECK(go_on(left) == 4096 + 300);
  for (std::size_t at = 0; at < left.size(); at += at < 260 ? 3 : 97) {
    Bytes changed = left;
    changed[at] ^= static_cast<std::byte>(at % 255 + 1);
    CHECK(go_on(changed) <= 4096 + 300);
  }
  for (std::size_t size = 0; size < left.size(); size += size < 260 ? 17 : 397) {
    Bytes cut = left;
    cut.resize(size);
    CHECK(go_on(cut) == 0);
  }
  Bytes longer = left;
  longer.resize(left.size() + 1);
  CHECK(go_on(longer) == 0);
  // Another block's file under the name, whole: nothing of it is ours.
  const Block other = test_block(2 * 4096 + 300, "other");
  cache.put(other);
  CHECK(go_on(read_file(cache.block_path(other.key))) == 0);
}

TEST_CASE("FillFile: what somebody else published is found, and the own file goes") {
  TestCache cache;
  const Block block = test_block(10'000);
  cache.put(block);
  const Bytes published = read_file(cache.block_path(block.key));
  auto begun = cache.begin(block);
  CHECK(holds<PublishedBlock>(begun));
  CHECK(!fs::exists(cache.fill_path(block.key)));
  cache.folder->remove_block(block.key).value();

  // Published between the look and the lock: at the third look at the block's path it is there.
  int looks = 0;
  cache.ops->fault = [&](std::string_view call, int) {
    if (call == "set_lock") write_file(cache.block_path(block.key), published);
    looks += call == "set_lock" ? 1 : 0;
    return 0;
  };
  CHECK(holds<PublishedBlock>(cache.begin(block)));
  CHECK(looks == 1);
  CHECK(!fs::exists(cache.fill_path(block.key)));
  cache.ops->fault = nullptr;
  cache.folder->remove_block(block.key).value();

  // Published while we fill, by somebody who does not keep the protocol.
  const auto file = cache.fill(block);
  REQUIRE(file->write(0, payload_of(block)));
  CHECK(*file->publish([&] { write_file(cache.block_path(block.key), published); }) == false);
  CHECK(!fs::exists(cache.fill_path(block.key)));
  CHECK(cache.get(block) == payload_of(block));
}

TEST_CASE("FillFile: a file that vanished or was replaced between open and lock is opened anew") {
  TestCache cache;
  const Block block = test_block(10'000);
  int turns = 0;
  cache.ops->fault = [&](std::string_view call, int) {
    if (call == "set_lock" && ++turns <= 5) {
      fs::rename(cache.fill_path(block.key), cache.temp.path("away"));
      if (turns % 2 == 0) write_file(cache.fill_path(block.key), bytes_of("another"));
    }
    return 0;
  };
  CHECK(holds<std::unique_ptr<FillFile>>(cache.begin(block)));
  CHECK(turns == 6);
  turns = -1'000'000;  // it never ends: an error and no endless loop
  const auto begun = cache.begin(block);
  REQUIRE(!begun);
  CHECK(begun.error().code() == ErrorCode::io_failed);
}

TEST_CASE("FillFile: abandoned it leaves nothing, dropped it leaves its cells") {
  TestCache cache;
  const Block block = test_block(10'000);
  {
    const auto file = cache.fill(block);
    REQUIRE(file->write(0, part(payload_of(block), 0, 4096)));
  }
  CHECK(fs::exists(cache.fill_path(block.key)));
  {
    const auto file = cache.fill(block);
    CHECK(file->whole_bytes() == 4096);
    file->abandon();
    CHECK(!fs::exists(cache.fill_path(block.key)));
  }
  CHECK(cache.fill(block)->whole_bytes() == 0);
}

TEST_CASE("FillFile: file systems without RENAME_NOREPLACE, and without links, publish too") {
  TestCache cache;
  for (const bool links : {true, false}) {
    cache.ops->fault = [links](std::string_view call, int) {
      if (call == "renameat2") return -EINVAL;
      return call == "linkat" && !links ? -EPERM : 0;
    };
    const Block block = test_block(10'000, links ? "links" : "none");
    cache.put(block);
    CHECK(cache.get(block) == payload_of(block));
    CHECK(!fs::exists(cache.fill_path(block.key)));
  }
  // Killed between link and unlink: both names. The next one finds the block and tidies up.
  const Block block = test_block(10'000, "both");
  cache.ops->fault = [](std::string_view call, int) {
    return call == "renameat2" || call == "unlinkat" ? -EINVAL : 0;
  };
  cache.put(block);
  cache.ops->fault = nullptr;
  CHECK(fs::exists(cache.fill_path(block.key)));
  CHECK(cache.get(block) == payload_of(block));
  CHECK(*remove_dead_fills(*cache.folder, cache.claims) == disk_bytes(*layout_of(block)));
  CHECK(cache.get(block) == payload_of(block));
  CHECK(!fs::exists(cache.fill_path(block.key)));
}

TEST_CASE("FillFile: something else under the name is an error, and stays") {
  TestCache cache;
  const Block block = test_block(10'000);
  const std::string path = cache.fill_path(block.key), outside = cache.temp.write("outside", "x");
  const auto refused = [&] {
    const bool failed = !cache.begin(block);
    CHECK(*remove_dead_fills(*cache.folder, cache.claims) == 0);
    CHECK(fs::symlink_status(path).type() != fs::file_type::not_found);
    fs::remove(path);
    return failed;
  };
  fs::create_symlink(outside, path);
  CHECK(refused());
  fs::create_directory(path);
  CHECK(refused());
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(refused());
  CHECK(cache.temp.read("outside") == "x");
  CHECK(cache.fill(block));
}

TEST_CASE("FillFile: only fill files of the dead are removed") {
  TestCache cache;
  const Block dead = test_block(100'000, "dead"), alive = test_block(100'000, "alive"),
              ours = test_block(100'000, "ours");
  Holder holder([&] { fill_in_child(cache.root(), alive, 4096).release(); });
  { const auto left = cache.fill(dead); }
  const auto held = cache.fill(ours);
  std::ofstream(cache.root() + "/v1/fill/notes") << "x";
  std::ofstream(cache.root() + "/v1/fill/" + std::string(31, 'a')) << "x";
  CHECK(*remove_dead_fills(*cache.folder, cache.claims) == disk_bytes(*layout_of(dead)));
  CHECK(!fs::exists(cache.fill_path(dead.key)));
  CHECK(fs::exists(cache.fill_path(alive.key)));
  CHECK(fs::exists(cache.fill_path(ours.key)));
  CHECK(fs::exists(cache.root() + "/v1/fill/notes"));
  CHECK(fs::exists(cache.root() + "/v1/fill/" + std::string(31, 'a')));
  // Our own locks are still there.
  CHECK(in_child([&] {
          FillClaims claims;
          return *remove_dead_fills(*cache.folder, claims) == 0 ? 0 : 1;
        }) == 0);
  holder.kill();
  CHECK(*remove_dead_fills(*cache.folder, cache.claims) == disk_bytes(*layout_of(alive)));
}

TEST_CASE("FillFile: short writes and reads change nothing") {
  TestCache cache;
  for (const std::size_t at_once : {1u, 511u, 4095u, 5000u}) {
    cache.ops->at_once = at_once;
    const Block block = test_block(9000, std::to_string(at_once));
    cache.put(block);
    CHECK(cache.get(block) == payload_of(block));
  }
}

TEST_CASE("FillFile: several threads write and read different cells") {
  TestCache cache;
  const auto folder = *CacheFolder::open(cache.root(), std::make_shared<CacheOps>());
  const Block block = test_block(200 * 4096 + 7);
  const Bytes payload = payload_of(block);
  auto begun = FillFile::begin(folder, block, *cache.claims.claim(block.key));
  const auto file = std::get<std::unique_ptr<FillFile>>(*std::move(begun));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      for (std::uint64_t cell = number; cell < 201; cell += 4) {
        const std::uint64_t at = cell * 4096;
        const std::size_t size = std::min<std::size_t>(4096, payload.size() - at);
        if (!file->write(at, std::span(payload).subspan(at, size))) ++wrong;
        // What another thread wrote before.
        const std::uint64_t other = (cell * 7 + 1) % 201 * 4096;
        Bytes bytes(std::min<std::size_t>(4096, payload.size() - other));
        const Piece piece{other, bytes};
        if (!file->has({other, other + bytes.size()})) continue;
        if (!file->read({&piece, 1}) || bytes != part(payload, other, bytes.size())) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(file->whole_bytes() == payload.size());
  CHECK(*file->publish(nullptr));
  CHECK(cache.get(block) == payload);
}
