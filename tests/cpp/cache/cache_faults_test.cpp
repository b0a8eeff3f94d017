// Each system call of the cache fails in each way, once and for ever.
#include <array>
#include <cerrno>
#include <fstream>

#include "cache/cache_fixture.h"

using namespace headpond;
namespace fs = std::filesystem;

namespace {

// What a job does with a cache. Whatever fails: bytes that come out are the right ones.
void use(const std::string& root, const std::shared_ptr<FaultyCacheOps>& ops) {
  const auto opened = CacheFolder::open(root, ops);
  if (!opened) return;
  const auto& folder = *opened;
  FillClaims claims;
  const auto get = [&](const Block& block) {
    const auto published = PublishedBlock::open(folder, block);
    if (!published || !*published) return false;
    Bytes bytes(block.bytes());
    const Piece piece{0, bytes};
    const auto read = (*published)->read({&piece, 1}, Wait::allowed);
    if (!read) return false;
    CHECK(bytes == payload_of(block));
    return true;
  };
  for (const char* name : {"one", "two"}) {
    const Block block = test_block(3 * 4096 + 10, name);
    if (get(block)) continue;
    auto begun = FillFile::begin(folder, block, *claims.claim(block.key));
    if (!begun) continue;
    if (std::holds_alternative<PublishedBlock>(*begun)) continue;
    REQUIRE(std::holds_alternative<std::unique_ptr<FillFile>>(*begun));
    const auto file = std::get<std::unique_ptr<FillFile>>(*std::move(begun));
    bool written = true;
    for (const ByteRange range : file->missing()) {
      const Bytes payload = payload_of(block);
      written = written &&
                file->write(range.start, std::span(payload).subspan(range.start, range.size()));
    }
    if (!written || !file->publish(nullptr)) {
      // A disk that is full gets its space back; with other errors a successor goes on.
      if (name == std::string("one")) file->abandon();
      continue;
    }
    get(block);
  }
  static_cast<void>(folder->scan(240, [](const BlockKey&, std::uint64_t) { return true; }));
  static_cast<void>(remove_dead_fills(*folder, claims));
  static_cast<void>(folder->remove_block(test_block(3 * 4096 + 10, "one").key));
}

int open_descriptors() {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd"))
    count += entry.path().empty() ? 0 : 1;
  return count;
}

}  // namespace

TEST_CASE("cache faults: each call fails once with each error, and all is well afterwards") {
  const int descriptors = open_descriptors();
  const auto ops = std::make_shared<FaultyCacheOps>();
  {
    const TempDir temp = TempDir::in_memory();
    use(temp.path("cache"), ops);
  }
  const int calls = std::exchange(ops->calls, 0);
  REQUIRE(calls > 80);
  constexpr std::array kErrors = {ENOSPC, EROFS, EDQUOT, EMFILE, ENOLCK, EACCES, EINVAL, ESTALE};
  for (int turn = 0; turn < 3 * calls; ++turn) {
    const int failing = turn / 3;
    const std::size_t other = static_cast<std::size_t>(turn / 3 * 2 + turn % 3) % kErrors.size();
    const int error = turn % 3 == 0 ? EIO : kErrors[other];
    const TempDir temp = TempDir::in_memory();
    ops->calls = 0;
    ops->fault = [&](std::string_view, int number) { return number == failing ? -error : 0; };
    use(temp.path("cache"), ops);
    CHECK(ops->open_fds.empty());
    ops->fault = nullptr;
    use(temp.path("cache"), ops);
    use(temp.path("cache"), ops);
    CHECK(ops->open_fds.empty());
    TestCache later;
    later.folder = *CacheFolder::open(temp.path("cache"), later.ops);
    const Block two = test_block(3 * 4096 + 10, "two");
    CHECK(later.get(two) == payload_of(two));
  }
  CHECK(open_descriptors() == descriptors);
}

TEST_CASE("cache faults: a call that always fails costs hits, never bytes of others or ours") {
  for (const int error : {EIO, ENOSPC, EROFS, EDQUOT}) {
    for (const char* failing :
         {"open_root", "openat", "mkdirat", "set_lock", "fstat", "fstatat", "preadv", "pwrite",
          "ftruncate", "fsync", "renameat2", "linkat", "unlinkat", "list"}) {
      TestCache cache;
      const Block kept = test_block(5000, "kept");
      cache.put(kept);
      const std::string leaf = fs::path(cache.block_path(kept.key)).parent_path();
      const std::vector<std::string> strangers = {cache.root() + "/notes.txt", leaf + "/notes",
                                                  cache.root() + "/v1/fill/notes",
                                                  cache.temp.path("outside")};
      for (const auto& file : strangers) std::ofstream(file) << "not the cache's";
      cache.ops->fault = [&](std::string_view call, int) { return call == failing ? -error : 0; };
      use(cache.root(), cache.ops);
      cache.ops->fault = nullptr;
      for (const auto& file : strangers) CHECK(read_file(file) == bytes_of("not the cache's"));
      CHECK(cache.get(kept) == payload_of(kept));
    }
  }
}

TEST_CASE("cache faults: a full disk is told apart from a broken one") {
  for (const int error : {ENOSPC, EDQUOT, EFBIG}) {
    TestCache cache;
    const Block block = test_block(5000);
    const auto file = cache.fill(block);
    cache.ops->fault = [&](std::string_view call, int) { return call == "pwrite" ? -error : 0; };
    const auto written = file->write(0, payload_of(block));
    REQUIRE(!written);
    CHECK(written.error().code() == ErrorCode::resource_limit);
    CHECK(file->whole_bytes() == 0);
    const auto begun = cache.begin(test_block(6000, "other"));
    REQUIRE(!begun);
    CHECK(begun.error().code() == ErrorCode::resource_limit);
    file->abandon();
    CHECK(!fs::exists(cache.fill_path(block.key)));
  }
}

TEST_CASE("cache faults: a directory that was deleted is an error, and nothing is made anew") {
  TestCache cache;
  const Block block = test_block(5000);
  cache.put(block);
  const auto file = cache.fill(test_block(6000));
  fs::remove_all(cache.root());
  CHECK(!cache.open(block));
  CHECK(!cache.begin(block));
  REQUIRE(file->write(0, payload_of(test_block(6000))));
  CHECK(!file->publish(nullptr));
  CHECK(!fs::exists(cache.root()));
}
