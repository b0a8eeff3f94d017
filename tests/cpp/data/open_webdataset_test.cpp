#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "open_fixture.h"
#include "support/catch.h"
#include "support/tar_writer.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string shard(int number, int samples) {
  TarWriter tar;
  for (int i = 0; i < samples; ++i) {
    const std::string key = std::to_string(number) + "-" + std::to_string(i);
    tar.file(key + ".jpg", "J" + key).file(key + ".cls", std::to_string(i));
  }
  return tar.end().bytes();
}

std::vector<std::string> index_files(const std::string& folder) {
  std::vector<std::string> files;
  if (!std::filesystem::exists(folder)) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> warnings(LogQueue& log) {
  std::vector<std::string> texts;
  for (auto& record : log.drain()) {
    if (record.level == LogLevel::warning) texts.push_back(std::move(record.text));
  }
  return texts;
}

void write_file(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(text.data(), static_cast<std::streamsize>(text.size()));
}

struct ShardsFixture : OpenFixture {
  TempDir indexes;

  ShardsFixture() { context.index_folder = indexes.path("tar"); }
  Result<std::shared_ptr<const Dataset>> open() { return open_webdataset(all(), context); }
};

}  // namespace

TEST_CASE("open_webdataset: shards in name order are one sequence of samples") {
  ShardsFixture fixture;
  fixture.folder.write("s-0001.tar", shard(1, 3));
  fixture.folder.write("s-0000.tar", shard(0, 2));
  fixture.folder.write("notes.txt", "not a shard");
  for (const auto& source :
       {fixture.all(), fixture.source({"s-{0000..0001}.tar"}), fixture.source({"*.tar"})}) {
    const auto dataset = open_webdataset(source, fixture.context);
    REQUIRE(dataset);
    CHECK(keys(**dataset) == std::vector<std::string>{"0-0", "0-1", "1-0", "1-1", "1-2"});
    CHECK((*dataset)->format().shard_counts() == std::vector<std::uint64_t>{2, 3});
    CHECK(fixture.read(**dataset, extent_of(**dataset, 3, "jpg")) == "J1-1");
    CHECK(fixture.read(**dataset, extent_of(**dataset, 4, "cls")) == "2");
    CHECK((*dataset)->locate(4)->size() == 2);
    CHECK((*dataset)->notes().empty());
  }
}

TEST_CASE("open_webdataset: an index is kept and serves the next opening") {
  ShardsFixture fixture;
  fixture.folder.write("s.tar", shard(0, 3));
  const auto first = *fixture.open();
  const auto files = index_files(fixture.context.index_folder);
  REQUIRE(files.size() == 1);
  const auto written = std::filesystem::last_write_time(files[0]);
  const auto second = *fixture.open();
  CHECK(second->snapshot() == first->snapshot());
  CHECK(index_files(fixture.context.index_folder) == files);
  CHECK(std::filesystem::last_write_time(files[0]) == written);
}

TEST_CASE("open_webdataset: another version of a shard has another index") {
  ShardsFixture fixture;
  fixture.folder.write("s.tar", shard(0, 3));
  REQUIRE(fixture.open());
  fixture.folder.write("s.tar", shard(0, 4));
  CHECK((*fixture.open())->size() == 4);
  CHECK(warnings(*fixture.log).empty());
}

TEST_CASE("open_webdataset: a damaged index is built again with one warning") {
  ShardsFixture fixture;
  fixture.folder.write("s.tar", shard(0, 3));
  REQUIRE(fixture.open());
  const std::string path = index_files(fixture.context.index_folder).at(0);
  const std::string whole = TempDir().read(path);
  for (const std::string& damage :
       {std::string(), whole.substr(0, 100), std::string(whole.size(), 'x'),
        whole.substr(0, whole.size() - 1)}) {
    ShardsFixture fresh;  // its own log
    write_file(path, damage);
    fresh.context.index_folder = fixture.context.index_folder;
    const auto dataset = open_webdataset(fixture.all(), fresh.context);
    REQUIRE(dataset);
    CHECK((*dataset)->size() == 3);
    const auto texts = warnings(*fresh.log);
    REQUIRE(texts.size() == 1);
    CHECK_THAT(texts[0], ContainsSubstring("s.tar"));
    CHECK(open_webdataset(fixture.all(), fresh.context));
    CHECK(warnings(*fresh.log).empty());
  }
}

TEST_CASE(
    "open_webdataset: without a folder, or with one that cannot be written, the index is in "
    "memory") {
  ShardsFixture fixture;
  fixture.folder.write("s.tar", shard(0, 3));
  fixture.context.index_folder = "";
  CHECK((*fixture.open())->size() == 3);
  fixture.context.index_folder = fixture.folder.write("file", "a file, not a folder");
  CHECK((*open_webdataset(fixture.source({"s.tar"}), fixture.context))->size() == 3);
  const auto texts = warnings(*fixture.log);
  REQUIRE(texts.size() == 1);
  CHECK_THAT(texts[0], ContainsSubstring("memory"));
}

TEST_CASE("open_webdataset: a dead builder is replaced, and what it left is removed") {
  ShardsFixture fixture;
  fixture.folder.write("s.tar", shard(0, 3));
  REQUIRE(fixture.open());
  const std::string path = index_files(fixture.context.index_folder).at(0);
  std::filesystem::remove(path);
  const pid_t child = ::fork();
  if (child == 0) {
    // Dies as a builder would: with a lock file and half of a temporary file.
    write_file(path + ".lock", "");
    write_file(path + ".tmp." + std::to_string(::getpid()) + ".1", "half");
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((*fixture.open())->size() == 3);
  CHECK(index_files(fixture.context.index_folder) == std::vector<std::string>{path});
}

TEST_CASE("open_webdataset: openings at once all succeed and leave one index a shard") {
  ShardsFixture fixture;
  for (int i = 0; i < 6; ++i) fixture.folder.write("s" + std::to_string(i) + ".tar", shard(i, 20));
  std::vector<std::uint64_t> sizes(4, 0);
  std::vector<std::thread> threads;
  for (auto& size : sizes) {
    threads.emplace_back([&fixture, &size] {
      OpenContext context = fixture.context;
      const auto dataset = open_webdataset(fixture.all(), context);
      if (dataset) size = (*dataset)->size();
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(sizes == std::vector<std::uint64_t>(4, 120));
  CHECK(index_files(fixture.context.index_folder).size() == 6);
}

TEST_CASE("open_webdataset: a member behind one of 5 GiB is found") {
  ShardsFixture fixture;
  const std::uint64_t big = (std::uint64_t{5} << 30) + 1;
  const std::uint64_t padded = (big + 511) / 512 * 512;
  const std::string path =
      fixture.folder.write("s.tar", TarWriter::header({.name = "0.bin", .size = big}));
  std::filesystem::resize_file(path, 512 + padded);
  std::ofstream(path, std::ios::binary | std::ios::app)
      << TarWriter().file("1.bin", "ok").end().bytes();
  const auto dataset = *fixture.open();
  REQUIRE(dataset->size() == 2);
  CHECK(extent_of(*dataset, 0, "bin").size == big);
  CHECK(fixture.read(*dataset, extent_of(*dataset, 1, "bin")) == "ok");
}

TEST_CASE(
    "open_webdataset: a shard cut anywhere is an error that names it, or whole but for its end "
    "mark") {
  ShardsFixture fixture;
  fixture.context.index_folder = "";
  const std::string whole = shard(0, 1);
  for (std::size_t size = 0; size < whole.size(); size += 97) {
    fixture.folder.write("s.tar", std::string_view(whole).substr(0, size));
    const auto dataset = fixture.open();
    if (dataset) {
      CHECK((*dataset)->size() == 1);
      // Less than both members only together with the note.
      CHECK((size >= 2560 || !(*dataset)->notes().empty()));
    } else {
      CHECK(dataset.error().code() == ErrorCode::corrupt_data);
      CHECK(dataset.error().uri() == fixture.folder.path("s.tar"));
    }
  }
}

TEST_CASE("open_webdataset: errors name shard and member") {
  ShardsFixture fixture;
  fixture.folder.write("a.tar", shard(0, 1));
  fixture.folder.write(
      "b.tar", TarWriter().file("0.a", "1").file("1.a", "2").file("0.b", "3").end().bytes());
  const auto dataset = fixture.open();
  REQUIRE(!dataset);
  CHECK(dataset.error().code() == ErrorCode::corrupt_data);
  CHECK(dataset.error().uri() == fixture.folder.path("b.tar"));
  CHECK_THAT(dataset.error().to_string(), ContainsSubstring("\"0.b\""));
  CHECK(index_files(fixture.context.index_folder).size() <= 1);
}

TEST_CASE("open_webdataset: what was left out is noted") {
  ShardsFixture fixture;
  fixture.folder.write(
      "a.tar", TarWriter().file("x.jpg", "1").file("README", "2").member('5', "d/").bytes());
  fixture.folder.write("b.tar", TarWriter().end().bytes());
  fixture.folder.write("c.tar", shard(0, 1) + std::string(1024, '\0') + shard(1, 1));
  const auto dataset = *fixture.open();
  std::string all;
  for (const auto& note : dataset->notes()) all += note + "\n";
  CHECK_THAT(all, ContainsSubstring("2 members left out: 1 folders, 1 without an extension"));
  CHECK_THAT(all, ContainsSubstring("no end-of-archive mark"));
  CHECK_THAT(all, ContainsSubstring("a.tar"));
  CHECK_THAT(all, ContainsSubstring("no sample in " + fixture.folder.path("b.tar")));
  CHECK_THAT(all, ContainsSubstring("behind the end-of-archive mark"));
}

TEST_CASE("open_webdataset: nothing to read is an error") {
  ShardsFixture fixture;
  fixture.folder.write("a.txt", "x");
  CHECK_THAT(fixture.open().error().to_string(), ContainsSubstring(".txt (1)"));
  fixture.folder.write("a.tar", TarWriter().file("README", "2").end().bytes());
  CHECK_THAT(fixture.open().error().to_string(), ContainsSubstring("1 without an extension"));
  fixture.folder.write("a.tar", "");
  CHECK(fixture.open().error().code() == ErrorCode::corrupt_data);
}

TEST_CASE("open_webdataset: progress may stop the indexing, and every thread has ended then") {
  ShardsFixture fixture;
  for (int i = 0; i < 50; ++i)
    fixture.folder.write("s" + std::to_string(100 + i) + ".tar", shard(i, 5));
  const auto caller = std::this_thread::get_id();
  bool elsewhere = false;
  fixture.context.progress = [&](const char* what, std::uint64_t, std::uint64_t) {
    elsewhere = elsewhere || std::this_thread::get_id() != caller;
    return std::string_view(what) != "indexing";
  };
  const auto dataset = fixture.open();
  REQUIRE(!dataset);
  CHECK(dataset.error().code() == ErrorCode::cancelled);
  CHECK(!elsewhere);
}
