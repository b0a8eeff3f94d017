#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "io/local_io.h"
#include "support/bytes.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Tree {
  Tree() {
    Uri root;
    root.path = dir.path();
    store = io->open(root);
  }
  std::vector<std::string> names(std::string_view prefix = {}) {
    auto objects = list_blocking(*store, prefix);
    REQUIRE(objects);
    std::vector<std::string> found;
    for (auto& object : *objects) found.push_back(std::move(object.name));
    return found;
  }
  void link(const std::string& to, const std::string& name) {
    std::filesystem::create_directories(std::filesystem::path(dir.path(name)).parent_path());
    REQUIRE(symlink(to.c_str(), dir.path(name).c_str()) == 0);
  }

  TempDir dir;
  std::shared_ptr<LocalIo> io = make_local_io({}, nullptr);
  std::shared_ptr<Store> store;
};

std::size_t threads_of_this_process() {
  const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

}  // namespace

TEST_CASE("listing a tree gives every file once, in the order of its name's bytes") {
  Tree tree;
  std::vector<std::string> names;
  for (int folder = 0; folder < 20; ++folder) {
    for (int file = 0; file < 20; ++file) {
      names.push_back("c" + std::to_string(folder) + (folder % 3 == 0 ? "/sub-" : "/sub/") +
                      std::to_string(file));
      tree.dir.write(names.back(), std::to_string(file));
    }
  }
  for (int file = 0; file < 2100; ++file) {
    names.push_back("flat/" + std::to_string(file));
    tree.dir.write(names.back(), "");
  }
  std::sort(names.begin(), names.end());
  CHECK(tree.names() == names);
#ifdef __SANITIZE_THREAD__
  const std::size_t threads = 2;  // it has one of its own
#else
  const std::size_t threads = 1;
#endif
  CHECK(threads_of_this_process() == threads);
}

TEST_CASE("listing gives size, mtime in ns and inode") {
  Tree tree;
  tree.dir.write("file", "12345");
  struct stat status = {};
  REQUIRE(::stat(tree.dir.path("file").c_str(), &status) == 0);
  auto objects = list_blocking(*tree.store);
  REQUIRE(objects);
  REQUIRE(objects->size() == 1);
  const ObjectVersion& version = (*objects)[0].version;
  CHECK(version.size == 5);
  CHECK(version.inode == status.st_ino);
  CHECK(version.mtime_ns == status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec);
}

TEST_CASE("listing keeps names that begin with a dot, and not . and ..") {
  Tree tree;
  tree.dir.write(".hidden/.x", "1");
  tree.dir.write("..y", "1");
  CHECK(tree.names() == std::vector<std::string>{"..y", ".hidden/.x"});
}

TEST_CASE("listing follows symbolic links wherever they lead") {
  Tree tree;
  const TempDir outside;
  outside.write("far/file", "far");
  tree.link(outside.path(), "a/outside");
  tree.link(outside.path("far/file"), "single");
  tree.dir.write("b/near", "near");
  tree.link("../b", "c/to-b");
  CHECK(tree.names() ==
        std::vector<std::string>{"a/outside/far/file", "b/near", "c/to-b/near", "single"});
  Bytes out(3);
  REQUIRE(read_blocking(*tree.store, "a/outside/far/file", 0, out));
  CHECK(out == bytes_of("far"));
}

TEST_CASE("listing names a dangling link and a loop") {
  Tree tree;
  tree.dir.write("a/file", "1");
  SECTION("a link to nowhere") {
    tree.link("nowhere", "a/dangling");
    auto objects = list_blocking(*tree.store);
    REQUIRE(!objects);
    CHECK(objects.error().code() == ErrorCode::not_found);
    CHECK_THAT(objects.error().to_string(),
               ContainsSubstring("a/dangling") && ContainsSubstring("leads nowhere"));
  }
  SECTION("a link to itself") {
    tree.link("self", "a/self");
    auto objects = list_blocking(*tree.store);
    REQUIRE(!objects);
    CHECK_THAT(objects.error().to_string(),
               ContainsSubstring("a/self") && ContainsSubstring("back to itself"));
  }
  SECTION("a link to a folder above") {
    tree.link("../..", "a/b/up");
    auto objects = list_blocking(*tree.store);
    REQUIRE(!objects);
    CHECK_THAT(objects.error().to_string(),
               ContainsSubstring("a/b/up") && ContainsSubstring("folder above"));
  }
}

TEST_CASE("listing without hidden names does not enter what it leaves out") {
  Tree tree;
  tree.dir.write("a/file", "1");
  tree.dir.write("a/.hidden", "1");
  tree.dir.write(".git/config", "1");
  tree.link("nowhere", ".git/dangling");
  tree.link("nowhere", "a/.#lock");
  std::vector<std::string> names;
  ListRequest request;
  request.skip_hidden = true;
  request.page = [&](Result<std::vector<ObjectInfo>> page) {
    REQUIRE(page);
    for (const auto& object : *page) names.push_back(object.name);
  };
  tree.store->list(std::move(request));
  CHECK(names == std::vector<std::string>{"a/file"});
}

TEST_CASE("listing does not enter what is not wanted, nor mind links there that lead nowhere") {
  Tree tree;
  const TempDir outside;
  outside.write("x", "1");
  tree.dir.write("a/file.x", "1");
  tree.dir.write("b/file.x", "1");
  tree.link("nowhere", "b/dangling");
  tree.link("..", "b/up");
  tree.link("nowhere", "a/dangling");
  tree.link(outside.path(), "linked");
  tree.link(outside.path(), "unwanted.x");  // a folder, whatever its name says
  const auto list = [&] {
    std::vector<std::string> names;
    ListRequest request;
    request.wanted = [](std::string_view name) {
      return name == "a/" || name == "linked/" || name.ends_with("/x") || name.ends_with(".x");
    };
    request.page = [&](Result<std::vector<ObjectInfo>> page) {
      if (!page) names.push_back(page.error().to_string());
      for (const auto& object : page.value_or(std::vector<ObjectInfo>()))
        names.push_back(object.name);
    };
    tree.store->list(std::move(request));
    return names;
  };
  CHECK(list() == std::vector<std::string>{"a/file.x", "linked/x"});
  tree.link("nowhere", "a/dangling.x");
  const auto error = list();
  REQUIRE(error.size() == 1);
  CHECK_THAT(error[0], ContainsSubstring("a/dangling.x") && ContainsSubstring("leads nowhere"));
}

TEST_CASE("listing tells of empty folders when it is asked to, the outermost ones in name order") {
  Tree tree;
  for (const char* folder : {"a/b/c", "full/empty", "z"})
    std::filesystem::create_directories(tree.dir.path(folder));
  tree.dir.write("full/file.x", "1");
  tree.dir.write("unwanted/file.y", "1");
  std::vector<std::string> names;
  ListRequest request;
  request.empty_folders = true;
  request.wanted = [](std::string_view name) { return name.back() == '/' || name.back() == 'x'; };
  request.page = [&](Result<std::vector<ObjectInfo>> page) {
    REQUIRE(page);
    for (const auto& object : *page) names.push_back(object.name);
  };
  tree.store->list(std::move(request));
  CHECK(names == std::vector<std::string>{"a/", "full/empty/", "full/file.x", "unwanted/", "z/"});
  CHECK(tree.names() == std::vector<std::string>{"full/file.x", "unwanted/file.y"});
}

TEST_CASE("two links to one folder are no loop") {
  Tree tree;
  tree.dir.write("data/x", "1");
  tree.link("data", "one");
  tree.link("data", "two");
  CHECK(tree.names() == std::vector<std::string>{"data/x", "one/x", "two/x"});
}

TEST_CASE("listing shows special files, and reading them says what they are") {
  Tree tree;
  REQUIRE(mkfifo(tree.dir.path("pipe").c_str(), 0600) == 0);
  CHECK(tree.names() == std::vector<std::string>{"pipe"});
  Bytes out(1);
  CHECK(read_blocking(*tree.store, "pipe", 0, out).error().code() == ErrorCode::not_regular);
}

TEST_CASE("listing what does not exist names it; an empty folder is an empty list") {
  Tree tree;
  CHECK(tree.names().empty());
  Uri root;
  root.path = tree.dir.path("missing");
  auto objects = list_blocking(*tree.io->open(root));
  REQUIRE(!objects);
  CHECK(objects.error().code() == ErrorCode::not_found);
  CHECK_THAT(objects.error().to_string(), ContainsSubstring("missing"));
  tree.dir.write("file", "1");
  root.path = tree.dir.path("file");
  CHECK(!list_blocking(*tree.io->open(root)));
}

TEST_CASE("a stopped listing is cancelled") {
  Tree tree;
  tree.dir.write("a/x", "1");
  StopSource stop;
  stop.request_stop();
  ListRequest request;
  request.stop = stop.get_token();
  int errors = 0;
  request.page = [&](Result<std::vector<ObjectInfo>> page) {
    REQUIRE(!page);
    CHECK(page.error().code() == ErrorCode::cancelled);
    ++errors;
  };
  tree.store->list(std::move(request));
  CHECK(errors == 1);
}

TEST_CASE("names are bytes: odd ones are listed, read and escaped in messages") {
  Tree tree;
  std::vector<std::string> names = {"\xff\xfe.bin", "new\nline",    "sp ace",
                                    "%41",          "\xE5\x86\x99", "a\x1b[31m"};
  for (const auto& name : names) tree.dir.write(name, name);
  std::sort(names.begin(), names.end());
  CHECK(tree.names() == names);
  for (const auto& name : names) {
    Bytes out(name.size());
    REQUIRE(read_blocking(*tree.store, name, 0, out));
    CHECK(out == bytes_of(name));
  }
  Bytes out(1);
  auto missing = read_blocking(*tree.store, "x\x1b\xff", 0, out);
  REQUIRE(!missing);
  CHECK_THAT(missing.error().to_string(), ContainsSubstring("/x\\x1b\\xff"));
}
