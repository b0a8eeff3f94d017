#include "format/formats.h"

#include <numeric>
#include <random>

#include "format/shard_lookup.h"
#include "support/catch.h"

using namespace headpond;

namespace {

std::shared_ptr<const Manifest> objects(std::vector<std::pair<std::string, std::uint64_t>> sizes) {
  std::vector<ObjectInfo> infos;
  for (auto& [name, size] : sizes) infos.push_back({name, {size, 1, 1, "", false}});
  return *Manifest::build(*Uri::parse("/r"), std::move(infos));
}

std::vector<Extent> locate_all(const Format& format, std::size_t field) {
  std::vector<std::uint64_t> samples(format.size());
  std::iota(samples.begin(), samples.end(), std::uint64_t{0});
  std::vector<Extent> out(samples.size());
  format.locate(samples, field, out);
  return out;
}

bool same(const Extent& a, const Extent& b) {
  return a.object == b.object && a.offset == b.offset && a.size == b.size;
}

void check_against_scan(const std::vector<std::uint64_t>& counts) {
  const ShardLookup lookup(counts);
  CHECK(lookup.counts() == counts);
  std::uint64_t sample = 0;
  for (std::uint32_t shard = 0; shard < counts.size(); ++shard) {
    for (std::uint64_t row = 0; row < counts[shard]; ++row, ++sample) {
      const auto place = lookup.find(sample);
      if (place.shard != shard || place.row != row)
        FAIL("sample " << sample << " of " << counts.size() << " shards");
    }
  }
  CHECK(lookup.size() == sample);
}

}  // namespace

TEST_CASE(
    "ShardLookup: equals a scan for every way to fill up to five shards with up to four samples") {
  for (std::size_t shards = 0; shards <= 5; ++shards) {
    std::vector<std::uint64_t> counts(shards);
    std::uint64_t ways = 1;
    for (std::size_t i = 0; i < shards; ++i) ways *= 5;
    for (std::uint64_t way = 0; way < ways; ++way) {
      std::uint64_t rest = way;
      for (auto& count : counts) {
        count = rest % 5;
        rest /= 5;
      }
      check_against_scan(counts);
    }
  }
}

TEST_CASE("ShardLookup: equals a scan for uneven shards") {
  std::mt19937 random(3);
  for (int turn = 0; turn < 50; ++turn) {
    std::vector<std::uint64_t> counts(1 + random() % 300);
    for (auto& count : counts) count = random() % 8 == 0 ? random() % 1000 : random() % 3;
    check_against_scan(counts);
  }
}

TEST_CASE("ShardLookup: numbers beyond 32 bits are found") {
  const std::uint64_t big = std::uint64_t{1} << 40;
  const ShardLookup lookup({big, 1, big, 0, 7});
  CHECK(lookup.find(big - 1).shard == 0);
  CHECK(lookup.find(big).shard == 1);
  CHECK(lookup.find(2 * big).row == big - 1);
  CHECK(lookup.find(2 * big + 7).shard == 4);
  CHECK(lookup.find(2 * big + 7).row == 6);
}

TEST_CASE("FilesFormat: a sample is an object, its label that of its run") {
  const auto format = make_files_format(objects({{"a-b/x", 5}, {"a/x", 0}, {"a/y", 7}, {"b/z", 9}}),
                                        std::vector<LabelRun>{{0, 1}, {1, 0}, {3, 2}});
  REQUIRE(format->fields().size() == 2);
  CHECK(format->fields()[1] == Field{"label", DType::int64, Shape{}, false});
  const auto data = locate_all(*format, 0);
  CHECK(same(data[1], {1, 0, 0}));
  CHECK(same(data[3], {3, 0, 9}));
  std::vector<std::uint64_t> labels;
  for (const auto& extent : locate_all(*format, 1)) {
    CHECK(extent.object == Extent::kValue);
    labels.push_back(extent.offset);
  }
  CHECK(labels == std::vector<std::uint64_t>{1, 0, 0, 2});
  CHECK(format->key(2) == "a/y");
  CHECK(format->shard_counts() == std::vector<std::uint64_t>{4});
}

TEST_CASE("FilesFormat: without labels there is one field") {
  CHECK(make_files_format(objects({{"x", 5}}), std::nullopt)->fields().size() == 1);
}

TEST_CASE("RecordsFormat: records lie behind their file's header, file after file") {
  const auto format = make_records_format(objects({{"a", 28}, {"b", 8}, {"c", 36}}),
                                          {{4, 2}, {8, 0}, {0, 3}}, {DType::float32, true}, {3});
  REQUIRE(format);
  CHECK((*format)->fields()[0] == Field{"data", DType::float32, Shape{3}, true});
  const auto extents = locate_all(**format, 0);
  const std::vector<Extent> expected = {
      {0, 4, 12}, {0, 16, 12}, {2, 0, 12}, {2, 12, 12}, {2, 24, 12}};
  REQUIRE(extents.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(same(extents[i], expected[i]));
  CHECK((*format)->key(3) == "c:1");
  CHECK((*format)->shard_counts() == std::vector<std::uint64_t>{2, 0, 3});
}

TEST_CASE("TokensFormat: windows may overlap and never cross files") {
  const auto format = make_tokens_format(objects({{"a", 20}, {"b", 20}}), {{0, 3}, {0, 3}},
                                         {DType::uint16, false}, {4, 3});
  REQUIRE(format);
  const auto extents = locate_all(**format, 0);
  const std::vector<Extent> expected = {{0, 0, 8}, {0, 6, 8}, {0, 12, 8},
                                        {1, 0, 8}, {1, 6, 8}, {1, 12, 8}};
  REQUIRE(extents.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(same(extents[i], expected[i]));
}

TEST_CASE("RecordsFormat: an offset behind 4 GiB is exact, one behind 2^63 refused") {
  const std::uint64_t records = (std::uint64_t{5} << 30) / 12;
  const auto format = make_records_format(objects({{"a", records * 12 + 7}}), {{7, records}},
                                          {DType::uint8, false}, {12});
  Extent extent;
  const std::uint64_t last = records - 1;
  (*format)->locate({&last, 1}, 0, {&extent, 1});
  CHECK(same(extent, {0, 7 + last * 12, 12}));
  CHECK(!make_records_format(objects({{"a", 1}}), {{0, std::uint64_t{1} << 62}},
                             {DType::int64, false}, {}));
}

TEST_CASE("ArraysFormat: row i of every column is sample i") {
  const auto format = make_arrays_format(
      {{{"y", DType::int64, Shape{}, false}, 1, 8}, {{"x", DType::float32, Shape{2}, false}, 0, 8}},
      3);
  CHECK(same(locate_all(*format, 0)[2], {1, 16, 8}));
  CHECK(same(locate_all(*format, 1)[1], {0, 8, 8}));
}
