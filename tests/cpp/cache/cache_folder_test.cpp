#include "cache/cache_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <thread>

#include "cache/cache_fixture.h"
#include "support/in_child.h"

using namespace headpond;
namespace fs = std::filesystem;

namespace {

// The environment variable as long as it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (old_) {
      ::setenv(name_, old_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

std::shared_ptr<CacheOps> real() { return std::make_shared<CacheOps>(); }

// The folder is refused, with this code and word, and nothing in it has changed.
void check_refused(const std::string& path, ErrorCode code, const std::string& word) {
  std::map<std::string, fs::file_status> before, after;
  const auto look = [&](auto& into) {
    std::error_code none;
    for (const auto& entry : fs::recursive_directory_iterator(path, none))
      into[entry.path()] = entry.symlink_status();
  };
  if (path != "/") look(before);
  const auto folder = CacheFolder::open(path, real());
  REQUIRE(!folder);
  INFO(folder.error().to_string());
  CHECK(folder.error().code() == code);
  CHECK(folder.error().to_string().find(word) != std::string::npos);
  CHECK(folder.error().to_string().find(path) != std::string::npos);
  if (path != "/") look(after);
  CHECK(before.size() == after.size());
}

}  // namespace

TEST_CASE("CacheFolder: opens again what it made, with the same node id") {
  TestCache cache;
  for (const char* end : {"", "/", "//"}) {
    const auto again = CacheFolder::open(cache.root() + end, cache.ops);
    REQUIRE(again);
    CHECK((*again)->node_id() == cache.folder->node_id());
    CHECK((*again)->identity() == cache.folder->identity());
  }
  CHECK(cache.folder->node_id().size() == 32);
  const auto other = CacheFolder::open(cache.temp.path("other"), real());
  CHECK((*other)->node_id() != cache.folder->node_id());
  CHECK((*other)->identity() != cache.folder->identity());
}

TEST_CASE("CacheFolder: folders are 0700 and files 0600 whatever the umask adds") {
  const mode_t old = ::umask(0);
  {
    TestCache cache;
    cache.put(test_block(5000));
    const auto fill = cache.fill(test_block(6000));
    for (const auto& entry : fs::recursive_directory_iterator(cache.root())) {
      const auto mode = static_cast<unsigned>(entry.status().permissions());
      CHECK(mode == (entry.is_directory() ? 0700u : 0600u));
    }
  }
  ::umask(old);
}

TEST_CASE("CacheFolder: the root, homes, links and folders that hold something else are refused") {
  const TempDir temp = TempDir::in_memory();
  check_refused("/", ErrorCode::invalid_argument, "root");
  fs::create_directory(temp.path("home"));
  {
    const Variable home("HOME", temp.path("home"));
    check_refused(temp.path("home"), ErrorCode::invalid_argument, "home");
  }
  REQUIRE(CacheFolder::open(temp.path("real"), real()));
  fs::create_directory_symlink(temp.path("real"), temp.path("link"));
  check_refused(temp.path("link"), ErrorCode::invalid_argument, "symbolic link");
  CHECK(!CacheFolder::open(temp.path("link/"), real()));
  fs::create_symlink(temp.path("nowhere"), temp.path("dangling"));
  check_refused(temp.path("dangling"), ErrorCode::invalid_argument, "symbolic link");
  CHECK(!fs::exists(temp.path("nowhere")));
  temp.write("data/train/a.jpg", "x");
  check_refused(temp.path("data"), ErrorCode::invalid_argument, "train");
  temp.write("file", "x");
  CHECK(!CacheFolder::open(temp.path("file"), real()));
  CHECK(!CacheFolder::open("", real()));
  const auto nowhere = CacheFolder::open(temp.path("a/b"), real());
  REQUIRE(!nowhere);
  CHECK(nowhere.error().code() == ErrorCode::not_found);
  // Below a link it is a folder as any other.
  CHECK(CacheFolder::open(temp.path("link/inside"), real()));
}

TEST_CASE("CacheFolder: what others own or can write is refused") {
  const TempDir temp = TempDir::in_memory();
  for (const unsigned mode : {0770u, 0702u, 0777u}) {
    const std::string path = temp.path("mode" + std::to_string(mode));
    fs::create_directory(path);
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    check_refused(path, ErrorCode::access_denied, "chmod 700");
  }
  REQUIRE(CacheFolder::open(temp.path("cache"), real()));
  for (const char* inside : {"v1", "v1/blocks", "v1/fill", "v1/use"}) {
    const std::string path = temp.path("cache/") + inside;
    REQUIRE(::chmod(path.c_str(), 0777) == 0);
    check_refused(temp.path("cache"), ErrorCode::access_denied, "others can write");
    REQUIRE(::chmod(path.c_str(), 0700) == 0);
  }
  if (::geteuid() != 0) HP_SKIP("only root can give a folder to somebody else");
  fs::create_directory(temp.path("foreign"));
  REQUIRE(::chown(temp.path("foreign").c_str(), 12'345, 12'345) == 0);
  check_refused(temp.path("foreign"), ErrorCode::access_denied, "12345");
  REQUIRE(::chown(temp.path("cache/v1/fill").c_str(), 12'345, 12'345) == 0);
  check_refused(temp.path("cache"), ErrorCode::access_denied, "another user");
}

TEST_CASE("CacheFolder: links planted inside are refused") {
  const TempDir temp = TempDir::in_memory();
  for (const char* inside : {"v1", "v1/blocks", "v1/fill", "v1/use"}) {
    REQUIRE(CacheFolder::open(temp.path("cache"), real()));
    const std::string path = temp.path("cache/") + inside;
    fs::rename(path, temp.path("away"));
    fs::create_directory_symlink(temp.path("away"), path);
    check_refused(temp.path("cache"), ErrorCode::invalid_argument, "no folder");
    fs::remove(path);
    fs::rename(temp.path("away"), path);
  }
  const std::string marker = temp.path("cache/headpond-cache");
  fs::rename(marker, temp.path("away"));
  fs::create_symlink(temp.path("away"), marker);
  CHECK(!CacheFolder::open(temp.path("cache"), real()));
}

TEST_CASE("CacheFolder: a marker that is damaged is refused, one that was never finished is made") {
  const TempDir temp = TempDir::in_memory();
  REQUIRE(CacheFolder::open(temp.path("cache"), real()));
  const std::string marker = temp.read("cache/headpond-cache");
  CHECK(marker.size() == 48);
  for (const std::string& text :
       {std::string(), marker.substr(1), marker.substr(0, 47), marker + "\n", std::string(48, '\0'),
        std::string("notes about headpond\n")}) {
    temp.write("cache/headpond-cache", text);
    check_refused(temp.path("cache"), ErrorCode::corrupt_data, "marker");
  }
  const std::string unfinished = "headpond-cache.tmp-" + std::string(32, 'a');
  temp.write("fresh/" + unfinished, "headp");
  CHECK(CacheFolder::open(temp.path("fresh"), real()));
  CHECK(!fs::exists(temp.path("fresh/" + unfinished)));
  temp.write("stranger/headpond-cache.tmp-notes", "x");
  check_refused(temp.path("stranger"), ErrorCode::invalid_argument, "not empty");
}

TEST_CASE("CacheFolder: threads and processes that open a new one together agree on its id") {
  const TempDir temp = TempDir::in_memory();
  for (int turn = 0; turn < 20; ++turn) {
    const std::string path = temp.path(std::to_string(turn));
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    std::vector<pid_t> children;
    for (int child = 0; child < 4; ++child) {
      children.push_back(::fork());
      if (children.back() == 0) {
        const auto folder = CacheFolder::open(path, real());
        const std::string id = folder ? (*folder)->node_id() : std::string(32, 'x');
        ::_exit(::write(ends[1], id.data(), 32) == 32 ? 0 : 1);
      }
    }
    std::string ids(std::size_t{4 * 32}, ' ');
    for (int child = 0; child < 4; ++child)
      REQUIRE(::read(ends[0], ids.data() + child * 32, 32) == 32);
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
    ::close(ends[0]);
    ::close(ends[1]);
    const auto folder = CacheFolder::open(path, real());
    REQUIRE(folder);
    for (std::size_t child = 0; child < 4; ++child)
      CHECK(ids.substr(child * 32, 32) == (*folder)->node_id());
    int files = 0;
    for (const auto& entry : fs::directory_iterator(path)) files += entry.is_regular_file() ? 1 : 0;
    CHECK(files == 1);
  }
}

TEST_CASE("CacheFolder: one that is read-only still opens and reads") {
  TestCache cache;
  const Block block = test_block(5000);
  cache.put(block);
  cache.ops->fault = [](std::string_view call, int) {
    const bool writes = call == "mkdirat" || call == "pwrite" || call == "ftruncate" ||
                        call == "unlinkat" || call == "renameat2" || call == "linkat";
    return writes ? -EROFS : 0;
  };
  cache.folder = *CacheFolder::open(cache.root(), cache.ops);
  CHECK(cache.get(block) == payload_of(block));
  CHECK(!cache.begin(test_block(6000)));
}

TEST_CASE("CacheFolder: a scan gives every block with what it takes, from any folder on") {
  TestCache cache;
  std::map<BlockKey, std::uint64_t> blocks;
  for (int i = 0; i < 100; ++i) {
    const Block block = test_block(100 + 50 * static_cast<std::uint64_t>(i), std::to_string(i));
    cache.put(block);
    blocks[block.key] = disk_bytes(*layout_of(block));
  }
  const std::string some = cache.block_path(blocks.begin()->first);
  const std::string leaf = fs::path(some).parent_path();
  // Strangers, and what looks like a block in the wrong place.
  std::ofstream(leaf + "/notes.txt") << "x";
  std::ofstream(leaf + "/" + std::string(32, '0')) << "x";
  fs::create_directory(leaf + "/" + fs::path(some).filename().string().substr(0, 4) +
                       std::string(28, 'f'));
  std::ofstream(cache.root() + "/v1/blocks/zz") << "x";
  std::map<BlockKey, std::uint64_t> seen;
  const auto see = [&](const BlockKey& key, std::uint64_t bytes) {
    CHECK(seen.emplace(key, bytes).second);
    return true;
  };
  CHECK(*cache.folder->scan(0, see) == 256);
  CHECK(seen == blocks);
  for (const int first : {1, 100, 255, 256}) {
    seen.clear();
    CHECK(*cache.folder->scan(first, see) == 256);
    for (const auto& [key, bytes] : blocks)
      CHECK(seen.count(key) == (static_cast<int>(key.digest.high >> 56) >= first ? 1u : 0u));
  }
  int given = 0;
  const int stopped = *cache.folder->scan(
      0, [&](const BlockKey& key, std::uint64_t) { return ++given < 10 || key.digest.high == 0; });
  CHECK(given == 10);
  CHECK(stopped < 256);
  cache.ops->fault = [](std::string_view call, int) { return call == "openat" ? -EMFILE : 0; };
  CHECK(!cache.folder->scan(0, see));
}

TEST_CASE("CacheFolder: names of blocks are 32 lower-case hex digits and nothing else") {
  const BlockKey key{{0x0123456789abcdefull, 0xfedcba9876543210ull}};
  CHECK(key.hex() == "0123456789abcdeffedcba9876543210");
  CHECK(parse_block_name(key.hex()) == key);
  for (const char* name :
       {"", "0", "0123456789abcdeffedcba987654321", "0123456789abcdeffedcba98765432100",
        "0123456789ABCDEFFEDCBA9876543210", "0123456789abcdeffedcba987654321g",
        "0123456789abcdeffedcba98765432 0", "../../../../../../../../etc/pass"}) {
    CHECK(!parse_block_name(name));
  }
}

TEST_CASE("CacheOps: without openat2 the same paths open and the same links are refused") {
  const TempDir temp = TempDir::in_memory();
  temp.write("a/b/file", "x");
  fs::create_directory_symlink(temp.path("a/b"), temp.path("a/link"));
  fs::create_symlink(temp.path("a/b/file"), temp.path("a/b/link"));
  fs::create_directory_symlink(temp.path("none"), temp.path("dangling"));
  CacheOps ops;
  const CacheFd dir(ops, ops.open_root(temp.path().c_str()));
  REQUIRE(dir);
  for (const auto& [path, flags] :
       std::vector<std::pair<const char*, int>>{{"a/b/file", O_RDONLY},
                                                {"a", O_RDONLY | O_DIRECTORY},
                                                {"a/b", O_PATH | O_DIRECTORY},
                                                {"a/link/file", O_RDONLY},
                                                {"a/b/link", O_RDONLY},
                                                {"a/link", O_RDONLY | O_DIRECTORY},
                                                {"a/link", O_PATH | O_DIRECTORY},
                                                {"dangling", O_RDONLY},
                                                {"none", O_RDONLY},
                                                {"none/file", O_RDONLY},
                                                {"a/b/file/x", O_RDONLY},
                                                {"a/b/new", O_RDWR | O_CREAT}}) {
    INFO(path);
    const CacheFd one(ops, ops.openat(dir.get(), path, flags, 0600));
    const CacheFd two(ops, openat_by_parts(dir.get(), path, flags, 0600));
    CHECK(static_cast<bool>(one) == static_cast<bool>(two));
    if (!one) CHECK(one.get() == two.get());
  }
}
