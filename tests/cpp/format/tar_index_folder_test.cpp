#include "format/tar_index_folder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "format/record_lock.h"
#include "format/store_reading.h"
#include "headpond/memory_store.h"
#include "support/bytes.h"
#include "support/catch.h"
#include "support/tar_writer.h"
#include "support/temp_dir.h"

using namespace headpond;

namespace {

TarIndexFolder::Shard shard_of(Store& store, const std::string& name, ObjectVersion version) {
  return {"memory://x/" + name, version,
          [&store, name, version](std::uint64_t offset, std::span<std::byte> out) {
            return read_exactly(store, name, version, offset, out);
          }};
}
TarIndexFolder::Shard shard_in(MemoryStore& store, const std::string& name = "s.tar") {
  return shard_of(store, name, stat_blocking(store, name)->version);
}

// Two ends between processes: one byte is a signal.
struct Pipe {
  int ends[2];
  Pipe() { REQUIRE(::pipe(ends) == 0); }
  ~Pipe() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  void signal() const { static_cast<void>(::write(ends[1], "x", 1)); }
  void wait() const {
    char byte = 0;
    static_cast<void>(::read(ends[0], &byte, 1));
  }
};

// Another process, which holds the lock of an index until `end`.
class LockHolder {
 public:
  explicit LockHolder(const std::string& index) {
    std::filesystem::create_directories(std::filesystem::path(index).parent_path());
    child_ = ::fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      const auto lock = RecordLock::acquire(index + ".lock", nullptr);
      locked_.signal();
      finished_.wait();
      ::_exit(lock ? 0 : 1);
    }
    locked_.wait();
  }
  // Did it have the lock?
  bool end() {
    finished_.signal();
    int status = 1;
    ::waitpid(child_, &status, 0);
    return status == 0;
  }

 private:
  const Pipe locked_, finished_;
  pid_t child_ = -1;
};

}  // namespace

TEST_CASE(
    "TarIndexFolder: who finds a shard being indexed waits for that index and reads nothing") {
  const TempDir folder;
  MemoryStore store;
  store.put("s.tar", bytes_of(TarWriter().file("a.x", "1").file("b.x", "2").end().bytes()));
  const auto shard = shard_in(store);
  const TarIndexFolder here(folder.path(), nullptr);
  const std::string path = here.path_of(shard.uri, shard.version);
  REQUIRE(here.get(shard, nullptr));
  std::filesystem::rename(path, folder.path("finished"));

  const Pipe locked, waiting;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = RecordLock::acquire(path + ".lock", nullptr);
    if (!lock) ::_exit(1);
    locked.signal();
    waiting.wait();
    std::filesystem::rename(folder.path("finished"), path);
    // The kernel drops the lock.
    ::_exit(0);
  }
  locked.wait();
  MemoryStore empty;  // a read would be not_found
  const TarIndexFolder::Shard unread = shard_of(empty, "s.tar", shard.version);
  bool asked = false;
  const auto index = here.get(unread, [&] {
    if (!asked) waiting.signal();
    asked = true;
    return true;
  });
  int status = 1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  REQUIRE(index);
  CHECK((*index)->samples() == 2);
  CHECK(asked);
}

TEST_CASE("TarIndexFolder: waiting for another process can be given up") {
  const TempDir folder;
  MemoryStore store;
  store.put("s.tar", bytes_of(TarWriter().file("a.x", "1").end().bytes()));
  const auto shard = shard_in(store);
  const TarIndexFolder here(folder.path(), nullptr);
  LockHolder holder(here.path_of(shard.uri, shard.version));
  const auto index = here.get(shard, [] { return false; });
  CHECK(holder.end());
  REQUIRE(!index);
  CHECK(index.error().code() == ErrorCode::cancelled);
  CHECK(index.error().uri() == shard.uri);
}

TEST_CASE("TarIndexFolder: a process that holds the lock and does nothing is not waited for long") {
  const TempDir folder;
  MemoryStore store;
  store.put("s.tar", bytes_of(TarWriter().file("a.x", "1").end().bytes()));
  const auto shard = shard_in(store);
  const TarIndexFolder here(folder.path(), nullptr, std::chrono::milliseconds(30));
  const std::string path = here.path_of(shard.uri, shard.version);
  LockHolder holder(path);
  const auto index = here.get(shard, [] { return true; });
  CHECK(holder.end());
  REQUIRE(index);
  CHECK((*index)->samples() == 1);
  CHECK(std::filesystem::exists(path));
}

TEST_CASE("TarIndexFolder: processes that index the same shards at once leave one index of each") {
  const TempDir folder;
  MemoryStore store;
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i) {
    names.push_back("s" + std::to_string(i) + ".tar");
    TarWriter tar;
    for (int member = 0; member < 40; ++member)
      tar.file(std::to_string(member) + ".x", std::string(300, 'a'));
    store.put(names.back(), bytes_of(tar.end().bytes()));
  }
  const Pipe go;
  std::vector<pid_t> children;
  for (int process = 0; process < 4; ++process) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    go.wait();
    const TarIndexFolder here(folder.path(), nullptr);
    int failed = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto& name = names[(i + static_cast<std::size_t>(process) * 3) % names.size()];
      const auto shard = shard_in(store, name);
      // As a stream keeps what it indexed, or as counting asks for it.
      const bool streams = process % 2 == 0;
      auto image = build_tar_index(shard.version.size, digest_of(shard.version), shard.read, {});
      const auto index = streams ? here.keep(shard.uri, shard.version, *std::move(image))
                                 : here.get(shard, nullptr);
      if (!index || (*index)->samples() != 40) ++failed;
    }
    ::_exit(failed);
  }
  for (int process = 0; process < 4; ++process) go.signal();
  for (const pid_t child : children) {
    int status = 1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
    files += entry.is_regular_file() ? 1 : 0;
  CHECK(files == names.size());
  LogQueue log;
  const TarIndexFolder here(folder.path(), std::shared_ptr<LogQueue>(&log, [](LogQueue*) {}));
  for (const auto& name : names) {
    const auto shard = shard_in(store, name);
    const auto found = here.find(shard.uri, shard.version);
    REQUIRE((found && *found));
  }
  CHECK(log.drain().empty());
}

TEST_CASE("TarIndexFolder: an index from elsewhere is kept and the shard is not read") {
  const TempDir folder;
  MemoryStore store, empty;
  store.put("s.tar", bytes_of(TarWriter().file("a.x", "1").file("b.x", "2").end().bytes()));
  const auto shard = shard_in(store);
  auto unread = shard_of(empty, "s.tar", shard.version);
  unread.shipped = [&]() -> std::optional<std::vector<std::byte>> {
    return *build_tar_index(shard.version.size, digest_of(shard.version), shard.read, {});
  };
  REQUIRE((*TarIndexFolder(folder.path(), nullptr).get(unread, nullptr))->samples() == 2);
  unread.shipped = nullptr;
  CHECK((*TarIndexFolder(folder.path(), nullptr).get(unread, nullptr))->samples() == 2);
}

TEST_CASE("TarIndexFolder: a shard that cannot be read leaves neither index nor lock") {
  const TempDir folder;
  MemoryStore empty;
  const TarIndexFolder here(folder.path(), nullptr);
  ObjectVersion version;
  version.size = 1024;
  const auto index = here.get(shard_of(empty, "s.tar", version), nullptr);
  REQUIRE(!index);
  CHECK(index.error().code() == ErrorCode::not_found);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    CHECK(!entry.is_regular_file());
  }
}

TEST_CASE(
    "TarIndexFolder: adding an index removes those that nobody used for 90 days, and only them") {
  namespace fs = std::filesystem;
  const TempDir folder;
  MemoryStore store;
  for (const char* name : {"old.tar", "recent.tar", "used.tar", "new.tar"})
    store.put(name, bytes_of(TarWriter().file("a.x", name).end().bytes()));
  const auto shard = [&](const std::string& name) { return shard_in(store, name); };
  const auto path = [&](const std::string& name) {
    return TarIndexFolder(folder.path(), nullptr).path_of(shard(name).uri, shard(name).version);
  };
  const auto age = [&](const std::string& file, int days) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(24 * days));
  };
  for (const char* name : {"old.tar", "recent.tar", "used.tar"})
    REQUIRE(TarIndexFolder(folder.path(), nullptr).get(shard(name), nullptr));
  age(path("old.tar"), 91);
  age(path("recent.tar"), 89);
  age(path("used.tar"), 91);
  const auto parent = fs::path(path("old.tar")).parent_path();
  const std::vector<std::string> foreign = {folder.write("notes.tarindex", "x"),
                                            folder.write("ab/x.tarindex", "x"),
                                            (parent / "readme").string()};
  std::ofstream(foreign.back()) << "x";
  for (const auto& file : foreign) age(file, 1000);
  // Of builders that were killed.
  const std::vector<std::string> left = {path("old.tar") + ".lock",
                                         path("recent.tar") + ".tmp.1.1"};
  for (const auto& file : left) {
    std::ofstream(file) << "";
    age(file, 91);
  }

  const TarIndexFolder here(folder.path(), nullptr);
  REQUIRE(here.get(shard("used.tar"), nullptr));
  CHECK(fs::exists(path("old.tar")));  // nothing was added yet
  REQUIRE(here.get(shard("new.tar"), nullptr));
  CHECK(!fs::exists(path("old.tar")));
  for (const auto& file : left) CHECK(!fs::exists(file));
  for (const char* name : {"recent.tar", "used.tar", "new.tar"}) CHECK(fs::exists(path(name)));
  for (const auto& file : foreign) CHECK(fs::exists(file));
}

TEST_CASE("RecordLock: the file goes with the lock, and comes again") {
  const TempDir folder;
  const std::string path = folder.path("x.lock");
  for (int turn = 0; turn < 2; ++turn) {
    const auto lock = RecordLock::acquire(path, nullptr);
    REQUIRE(lock);
    CHECK(std::filesystem::exists(path));
  }
  CHECK(!std::filesystem::exists(path));
  CHECK(RecordLock::acquire(folder.path("none/x.lock"), nullptr).error().code() ==
        ErrorCode::not_found);
}
