#include "data/beside.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>

#include "data/index_shards.h"
#include "format/store_reading.h"
#include "headpond/memory_store.h"
#include "open_fixture.h"
#include "support/bytes.h"
#include "support/catch.h"
#include "support/tar_writer.h"
#include "support/wrapped_store.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int kShards = 4;
constexpr int kSamples[kShards] = {5, 1, 8, 3};

std::string shard_bytes(int number, int samples) {
  TarWriter tar;
  for (int i = 0; i < samples; ++i) {
    const std::string key = std::to_string(number) + "-" + std::to_string(i);
    tar.file(key + ".txt", "T" + key).file(key + ".cls", std::to_string(i));
  }
  return tar.end().bytes();
}

std::string dali_text(int number, int samples) {
  const std::string tar = shard_bytes(number, samples);
  std::string text = "v1.2 " + std::to_string(samples) + "\n";
  std::size_t at = 0;
  for (int i = 0; i < samples; ++i) {
    const std::string key = std::to_string(number) + "-" + std::to_string(i);
    text += "txt " + std::to_string(at + 512) + " " + std::to_string(key.size() + 1) + " " + key +
            ".txt cls " + std::to_string(at + 1536) + " " +
            std::to_string(std::to_string(i).size()) + " " + key + ".cls\n";
    at += 2048;
  }
  return text;
}

// A store that is reached through a network, and tells what was read.
class FarStore final : public WrappedStore {
 public:
  explicit FarStore(std::shared_ptr<Store> inner) : WrappedStore(std::move(inner)) {}
  void read(std::span<ReadRequest> requests) override {
    {
      const std::lock_guard lock(mutex_);
      for (const auto& request : requests) {
        ++reads_[request.object];
        bytes_[request.object] += request.out.size();
      }
    }
    WrappedStore::read(requests);
  }
  Result<std::size_t> read_now(std::string_view, const ObjectVersion&, std::span<const Piece>,
                               Wait) override {
    return std::size_t{0};
  }
  bool is_remote() const override { return true; }

  int reads(const std::string& object) { return reads_[object]; }
  std::uint64_t bytes(const std::string& object) { return bytes_[object]; }
  void forget() {
    reads_.clear();
    bytes_.clear();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> reads_;
  std::map<std::string, std::uint64_t> bytes_;
};

struct FarFixture : OpenFixture {
  std::shared_ptr<MemoryStore> memory = std::make_shared<MemoryStore>();
  std::shared_ptr<FarStore> store = std::make_shared<FarStore>(memory);

  FarFixture() {
    stores.add("web", [this](const Uri&) { return Result<std::shared_ptr<Store>>(store); });
    for (int i = 0; i < kShards; ++i) put(name(i), shard_bytes(i, kSamples[i]));
  }
  static std::string name(int shard) { return "s-" + std::to_string(shard) + ".tar"; }
  void put(const std::string& object, std::string_view text) {
    memory->put(object, bytes_of(text));
  }
  // Indexes of what lies there now.
  void put_ours() {
    for (int i = 0; i < kShards; ++i) {
      const auto version = stat_blocking(*memory, name(i))->version;
      const auto image = build_tar_index(
          version.size, {},
          [&](std::uint64_t offset, std::span<std::byte> out) {
            return read_exactly(*memory, name(i), version, offset, out);
          },
          nullptr);
      memory->put(name(i) + ".hpindex", shipped_index(*image));
    }
  }
  void put_dali() {
    for (int i = 0; i < kShards; ++i)
      put("s-" + std::to_string(i) + ".idx", dali_text(i, kSamples[i]));
  }
  void put_wids(const std::string& counts = "5 1 8 3") {
    std::string list;
    std::size_t at = 0;
    for (int i = 0; i < kShards; ++i) {
      list += std::string(i == 0 ? "" : ",") + "{\"url\": \"gs://elsewhere/" + name(i) +
              "\", \"nsamples\": " + counts.substr(at, 1) + "}";
      at += 2;
    }
    put("shardindex.json",
        "{\"__kind__\": \"wids-shard-index-v1\", \"shardlist\": [" + list + "]}");
  }

  Result<std::shared_ptr<const Dataset>> open() {
    return open_webdataset({{"web://host/data/s-{0..3}.tar"}, nullptr}, context);
  }
  std::vector<std::string> warnings() {
    std::vector<std::string> texts;
    for (auto& record : log->drain()) {
      if (record.level == LogLevel::warning) texts.push_back(std::move(record.text));
    }
    return texts;
  }
};

std::vector<std::string> all_keys() {
  std::vector<std::string> keys;
  for (int shard = 0; shard < kShards; ++shard) {
    for (int i = 0; i < kSamples[shard]; ++i)
      keys.push_back(std::to_string(shard) + "-" + std::to_string(i));
  }
  return keys;
}

std::string text_of(FarFixture& fixture, const Dataset& dataset, std::uint64_t sample) {
  Extent extent;
  dataset.format().locate({&sample, 1}, *dataset.field_index("txt"), {&extent, 1});
  return fixture.read(dataset, extent);
}

}  // namespace

TEST_CASE("beside shards: nothing; one question of each kind finds that out") {
  FarFixture fixture;
  const auto dataset = *fixture.open();
  CHECK(!dataset->promised_size());
  CHECK(!dataset->indexes_lie_beside());
  for (const char* object : {"s-0.tar.hpindex", "s-0.idx", "shardindex.json", ".nv-meta/.info.json",
                             ".nv-meta/.info.yaml"}) {
    CHECK(fixture.store->reads(object) == 1);
  }
  CHECK(fixture.store->reads("s-1.tar.hpindex") == 0);
  CHECK(fixture.warnings().empty());
  REQUIRE(index_shards(*dataset, fixture.context));
  CHECK(keys(*dataset) == all_keys());
  CHECK(fixture.store->reads("s-1.tar.hpindex") == 0);
}

TEST_CASE("beside shards: URLs with a query are not looked beside") {
  FarFixture fixture;
  fixture.put("s-0.tar?key=1", shard_bytes(0, 5));
  fixture.put_wids();
  const auto dataset =
      open_webdataset({{"web://host/data/s-0.tar?key=1"}, nullptr}, fixture.context);
  REQUIRE(dataset);
  CHECK(!(*dataset)->promised_size());
  CHECK(fixture.store->reads("shardindex.json") == 0);
}

TEST_CASE("beside shards: an index of each makes all known, and three blocks of it are read") {
  for (const bool ours : {true, false}) {
    FarFixture fixture;
    ours ? fixture.put_ours() : fixture.put_dali();
    const auto dataset = *fixture.open();
    CHECK(dataset->indexes_lie_beside());
    CHECK(!dataset->size_is_known());
    fixture.store->forget();
    REQUIRE(index_shards(*dataset, fixture.context));
    for (int i = 1; i < kShards; ++i) CHECK(fixture.store->bytes(fixture.name(i)) <= 3 * 512);
    CHECK(keys(*dataset) == all_keys());
    CHECK(text_of(fixture, *dataset, 6) == "T2-0");
    CHECK(fixture.warnings().empty());
  }
}

TEST_CASE("beside shards: ours come before DALI's, and both before a list") {
  FarFixture fixture;
  fixture.put_ours();
  fixture.put_dali();
  fixture.put_wids("9 9 9 9");
  const auto dataset = *fixture.open();
  REQUIRE(index_shards(*dataset, fixture.context));
  CHECK(fixture.store->reads("s-3.idx") == 0);
  CHECK(dataset->size() == 17);
}

TEST_CASE("beside shards: indexes that do not fit are replaced by our own, with one warning") {
  for (const bool ours : {true, false}) {
    FarFixture fixture;
    ours ? fixture.put_ours() : fixture.put_dali();
    fixture.put("s-1.tar", shard_bytes(1, 2));
    fixture.put("s-2.tar", shard_bytes(7, 8));  // the same size
    const auto dataset = *fixture.open();
    REQUIRE(index_shards(*dataset, fixture.context));
    CHECK(dataset->size() == 18);
    CHECK(dataset->key(7) == "7-0");
    const auto texts = fixture.warnings();
    REQUIRE(texts.size() == 1);
    CHECK_THAT(texts[0], ContainsSubstring(ours ? ".tar.hpindex" : ".idx"));
  }
}

TEST_CASE("beside shards: where an index is missing the shard is walked") {
  FarFixture fixture;
  fixture.put_ours();
  fixture.put("s-9.tar", shard_bytes(9, 2));
  const auto dataset = *open_webdataset(
      {{"web://host/data/s-{0..3}.tar", "web://host/data/s-9.tar"}, nullptr}, fixture.context);
  REQUIRE(index_shards(*dataset, fixture.context));
  CHECK(dataset->size() == 19);
  CHECK(fixture.warnings().empty());
}

TEST_CASE("beside shards: a list promises counts, and a sample needs its own shard only") {
  for (const char* list : {"wids", ".nv-meta/.info.json", ".nv-meta/.info.yaml"}) {
    FarFixture fixture;
    const std::string_view name = list;
    if (name == "wids") fixture.put_wids();
    if (name.ends_with("json"))
      fixture.put(list, R"({"shard_counts":{"s-0.tar":5,"s-1.tar":1,"s-2.tar":8,"s-3.tar":3}})");
    if (name.ends_with("yaml")) {
      fixture.put(list,
                  "shard_counts:\n  s-0.tar: 5\n  s-1.tar: 1\n  s-2.tar: 8\n  s-3.tar: 3\n"
                  "  other.tar: 1\n");
    }
    const auto dataset = *fixture.open();
    REQUIRE(dataset->promised_size() == 17);
    CHECK(!dataset->size_is_known());
    fixture.store->forget();
    const auto expected = all_keys();
    for (const std::uint64_t sample : {6, 13, 5, 13}) {
      const auto reached = *reach_samples(*dataset, std::array{sample}, fixture.context);
      REQUIRE(dataset->holds(reached[0]));
      CHECK(dataset->key(reached[0]) == expected[sample]);
      CHECK(text_of(fixture, *dataset, reached[0]) == "T" + expected[sample]);
      CHECK(dataset->locate(reached[0])->size() == 2);
    }
    CHECK(fixture.store->reads("s-3.tar") == 0);
    CHECK(reach_samples(*dataset, std::array{std::uint64_t{17}}, fixture.context).error().code() ==
          ErrorCode::invalid_argument);
    REQUIRE(index_shards(*dataset, fixture.context));
    CHECK(keys(*dataset) == expected);
    CHECK(*reach_samples(*dataset, std::array{std::uint64_t{16}}, fixture.context) ==
          std::vector<std::uint64_t>{16});
    CHECK(fixture.warnings().empty());
  }
}

TEST_CASE("beside shards: a promise of some shards only is no size") {
  FarFixture fixture;
  fixture.put(".nv-meta/.info.yaml", "shard_counts:\n  s-0.tar: 5\n  s-1.tar: 1\n");
  const auto dataset = *fixture.open();
  CHECK(!dataset->promised_size());
  CHECK(dataset->format().shards()->promised(1) == 1);
}

TEST_CASE("beside shards: a broken promise is an error that names shard and both counts") {
  FarFixture fixture;
  fixture.put_wids("5 1 7 3");
  const auto is_told = [](const Error& error) {
    CHECK(error.code() == ErrorCode::corrupt_data);
    const std::string text = error.to_string();
    CHECK_THAT(text, ContainsSubstring("s-2.tar"));
    CHECK_THAT(text, ContainsSubstring("8 samples"));
    CHECK_THAT(text, ContainsSubstring("says 7"));
    CHECK_THAT(text, ContainsSubstring("shardindex.json"));
  };
  const auto dataset = *fixture.open();
  const auto counted = index_shards(*dataset, fixture.context);
  REQUIRE(!counted);
  is_told(counted.error());

  // While it is streamed.
  const auto other = *fixture.open();
  const Shards& shards = *other->format().shards();
  const auto version = stat_blocking(*fixture.memory, "s-2.tar")->version;
  const auto indexing =
      shards.index(2, version, [&](std::uint64_t offset, std::span<std::byte> out) {
        return read_exactly(*fixture.memory, "s-2.tar", version, offset, out);
      });
  REQUIRE((indexing && *indexing != nullptr));
  const auto known = (*indexing)->advance(version.size);
  REQUIRE(!known);
  is_told(known.error());
  CHECK(!shards.count(2));
}

TEST_CASE("beside shards: a damaged list is left aside with a warning, a page without") {
  for (const char* text : {"{\"__kind__\": \"wids-shard-index-v1\"", "{}", "shards"}) {
    FarFixture fixture;
    fixture.put("shardindex.json", text);
    const auto dataset = *fixture.open();
    CHECK(!dataset->promised_size());
    const auto texts = fixture.warnings();
    REQUIRE(texts.size() == 1);
    CHECK_THAT(texts[0], ContainsSubstring("shardindex.json"));
  }
  for (const char* text : {"", " \n<!doctype html><html></html>"}) {
    FarFixture fixture;
    for (const char* object : {"s-0.tar.hpindex", "s-0.idx", "shardindex.json",
                               ".nv-meta/.info.json", ".nv-meta/.info.yaml"}) {
      fixture.put(object, text);
    }
    const auto dataset = *fixture.open();
    CHECK(!dataset->promised_size());
    CHECK(!dataset->indexes_lie_beside());
    CHECK(fixture.warnings().empty());
  }
}

TEST_CASE("an index of wids is a source: URLs are relative to it, or to its base") {
  FarFixture fixture;
  const auto open = [&](const std::string& text) {
    fixture.put("w.json", text);
    return open_webdataset({{"web://host/data/w.json"}, nullptr}, fixture.context);
  };
  const std::string head = R"({"__kind__": "wids-shard-index-v1", )";
  for (const std::string& text : {
           head + R"("shardlist": [{"url": "s-0.tar", "nsamples": 5},
                                   {"url": "web://host/data/s-1.tar", "nsamples": 1}]})",
           head + R"("base": "web://host/data", "shardlist": [{"url": "s-0.tar", "nsamples": 5},
                                   {"url": "/data/s-1.tar", "nsamples": 1}]})",
       }) {
    const auto dataset = open(text);
    REQUIRE(dataset);
    CHECK((*dataset)->promised_size() == 6);
    const auto plain =
        *open_webdataset({{"web://host/data/s-{0..1}.tar"}, nullptr}, fixture.context);
    CHECK((*dataset)->fingerprint() == plain->fingerprint());
  }
  for (const std::string url : {"file:///etc/a.tar", "s-{0..1}.tar", "http://host/a.tar"}) {
    const auto dataset = open(head + R"("shardlist": [{"url": ")" + url + R"(", "nsamples": 5}]})");
    REQUIRE(!dataset);
    CHECK(dataset.error().code() == ErrorCode::invalid_argument);
  }
  CHECK(open("{").error().code() == ErrorCode::corrupt_data);
  CHECK(open_webdataset({{"web://host/data/none.json"}, nullptr}, fixture.context).error().code() ==
        ErrorCode::not_found);
}

TEST_CASE("an index of wids is a source of local shards, whose counts it must tell right") {
  OpenFixture fixture;
  fixture.folder.write("d/s-0.tar", shard_bytes(0, 2));
  fixture.folder.write("d/s-1.tar", shard_bytes(1, 3));
  const auto open = [&](const std::string& second) {
    fixture.folder.write("d/w.json", R"({"__kind__": "wids-shard-index-v1", "shardlist":
                       [{"url": "s-0.tar", "nsamples": 2}, {"url": "./s-1.tar", "nsamples": )" +
                                         second + "}]}");
    return open_webdataset(fixture.source({"d/w.json"}), fixture.context);
  };
  CHECK((*open("3"))->size() == 5);
  const auto wrong = open("4");
  REQUIRE(!wrong);
  CHECK(wrong.error().uri() == fixture.folder.path("d/s-1.tar"));
  CHECK_THAT(wrong.error().to_string(), ContainsSubstring("says 4"));
}

TEST_CASE("write_shard_indexes: what it writes beside local shards is used in place of walking") {
  OpenFixture fixture;
  for (int i = 0; i < kShards; ++i)
    fixture.folder.write("d/s-" + std::to_string(i) + ".tar", shard_bytes(i, kSamples[i]));
  const auto source = fixture.source({"d"});
  const auto before = *open_webdataset(source, fixture.context);
  const auto written = write_shard_indexes(source, "", fixture.context);
  REQUIRE(written);
  CHECK(written->shards == 4);
  CHECK(written->samples == 17);
  CHECK((*open_webdataset(source, fixture.context))->snapshot() == before->snapshot());
  // A header that walking would stumble over, neither in the middle nor at the end.
  std::fstream tar(fixture.folder.path("d/s-2.tar"),
                   std::ios::binary | std::ios::in | std::ios::out);
  tar.seekp(2048);
  tar.write("damaged", 7);
  tar.close();
  CHECK((*open_webdataset(source, fixture.context))->size() == 17);
  std::filesystem::remove(fixture.folder.path("d/s-0.tar.hpindex"));  // the first decides for all
  CHECK(!open_webdataset(source, fixture.context));
}

TEST_CASE("write_shard_indexes: into a folder, which makes them those of a web server") {
  FarFixture fixture;
  const TempDir folder;
  const Source source{{"web://host/data/s-{0..3}.tar"}, nullptr};
  CHECK(write_shard_indexes(source, "", fixture.context).error().code() ==
        ErrorCode::invalid_argument);
  REQUIRE(write_shard_indexes(source, folder.path("new"), fixture.context));
  for (int i = 0; i < kShards; ++i) {
    const std::string name = FarFixture::name(i) + ".hpindex";
    fixture.put(name, folder.read("new/" + name));
  }
  const auto dataset = *fixture.open();
  fixture.store->forget();
  REQUIRE(index_shards(*dataset, fixture.context));
  CHECK(keys(*dataset) == all_keys());
  CHECK(fixture.store->bytes("s-2.tar") <= 3 * 512);
  CHECK(fixture.warnings() == std::vector<std::string>());
}
