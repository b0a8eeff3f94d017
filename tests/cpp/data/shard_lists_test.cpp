#include "data/shard_lists.h"

#include "support/catch.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string kWids = R"({
  "__kind__": "wids-shard-index-v1",
  "wids_version": 1,
  "shardlist": [
    {"url": "a-0.tar", "md5sum": "00", "nsamples": 7, "filesize": 10240, "more": [{"url": 1}]},
    {"nsamples": 0, "url": "https://host/a-1.tar", "md5sum": null}
  ],
  "name": "a",
  "base": "https://host/data"
})";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

template <class T>
std::string why(const Result<T>& result) {
  return result ? std::string("nothing") : result.error().message();
}

std::vector<std::pair<std::string, std::uint64_t>> pairs(const std::vector<ShardCount>& list) {
  std::vector<std::pair<std::string, std::uint64_t>> pairs;
  for (const auto& shard : list) pairs.emplace_back(shard.name, shard.samples);
  return pairs;
}

using Pairs = std::vector<std::pair<std::string, std::uint64_t>>;

}  // namespace

TEST_CASE("parse_wids_index: URLs, counts and base, whatever else there is") {
  const auto index = parse_wids_index(kWids);
  REQUIRE(index);
  CHECK(pairs(index->shards) == Pairs{{"a-0.tar", 7}, {"https://host/a-1.tar", 0}});
  CHECK(index->base == "https://host/data");
  CHECK(!parse_wids_index(replaced(kWids, "\"base\"", "\"bass\""))->base);
}

TEST_CASE("parse_wids_index: cut anywhere it is an error") {
  for (std::size_t size = 0; size + 1 < kWids.size(); ++size)
    CHECK(!parse_wids_index(std::string_view(kWids).substr(0, size)));
}

TEST_CASE("parse_wids_index: errors say what is wrong") {
  const auto fails = [](std::string_view from, std::string_view to) {
    return why(parse_wids_index(replaced(kWids, from, to)));
  };
  CHECK_THAT(fails("index-v1", "index-v2"), ContainsSubstring("wids-shard-index-v1"));
  CHECK_THAT(fails("\"wids_version\": 1", "\"wids_version\": 2"), ContainsSubstring("version 1"));
  CHECK_THAT(fails("\"nsamples\": 7", "\"nsamples\": -7"), ContainsSubstring("shard 0"));
  CHECK_THAT(fails("\"nsamples\": 7", "\"nsamples\": 7.5"), ContainsSubstring("shard 0"));
  CHECK_THAT(fails("\"nsamples\": 7", "\"nsamples\": 4294967297"), ContainsSubstring("shard 0"));
  CHECK_THAT(fails("\"nsamples\": 7", "\"nsamples\": 18446744073709551617"),
             ContainsSubstring("shard 0"));
  CHECK_THAT(fails("\"nsamples\": 7", "\"nsample\": 7"), ContainsSubstring("shard 0"));
  CHECK_THAT(fails("\"url\": \"https://host/a-1.tar\"", "\"url\": \"\""),
             ContainsSubstring("shard 1"));
  CHECK_THAT(fails("{\"nsamples\": 0", "7, {\"nsamples\": 0"), ContainsSubstring("shard 1"));
  CHECK_THAT(fails("{\"nsamples\": 0", "[], {\"nsamples\": 0"), ContainsSubstring("shard 1"));
  CHECK_THAT(fails("\"shardlist\"", "\"shards\""), ContainsSubstring("no shard"));
  CHECK_THAT(fails("\"name\": \"a\"", "\"shardlist\": []"), ContainsSubstring("shardlist"));
  CHECK_THAT(fails("\"name\": \"a\"", "\"datasets\": [{}]"), ContainsSubstring("several"));
  CHECK_THAT(why(parse_wids_index("[]")), ContainsSubstring("no JSON object"));
  CHECK_THAT(why(parse_wids_index("")), ContainsSubstring("no JSON"));
  CHECK_THAT(why(parse_wids_index("{\"a\":" + std::string(100000, '['))),
             ContainsSubstring("too deeply"));
}

TEST_CASE("Energon's counts: JSON") {
  const auto list = parse_energon_json(
      R"({"energon_version": "7.4.1", "shard_counts": {"a/0.tar": 3, "a/1.tar": 0}, "x": [1]})");
  REQUIRE(list);
  CHECK(pairs(*list) == Pairs{{"a/0.tar", 3}, {"a/1.tar", 0}});
  for (const char* wrong :
       {"", "[]", "{}", R"({"shard_counts": []})", R"({"shard_counts": {"a": -1}})",
        R"({"shard_counts": {"a": "1"}})", R"({"shard_counts": {"a": null}})",
        R"({"shard_counts": {"a": {}}})", R"({"shard_counts": {"a": 4294967295}})"}) {
    CHECK(!parse_energon_json(wrong));
  }
}

TEST_CASE("Energon's counts: the YAML that it writes") {
  const auto list = parse_energon_yaml(
      "# made\nenergon_version: 7.1.0\nshard_counts:\n  parts/data-0.tar: 1223\n"
      "  'it''s: one.tar': 0\n\nother:\n  x: 1\n");
  REQUIRE(list);
  CHECK(pairs(*list) == Pairs{{"parts/data-0.tar", 1223}, {"it's: one.tar", 0}});
  CHECK(pairs(*parse_energon_yaml("shard_counts:\r\n  a.tar: 1\r\n")) == Pairs{{"a.tar", 1}});
}

TEST_CASE("Energon's counts: YAML of another form is refused, not guessed") {
  for (const char* wrong : {
           "",
           "shard_counts: {a.tar: 1}\n",
           "shard_counts:\n  a.tar: 01\n",
           "shard_counts:\n  a.tar: 1_000\n",
           "shard_counts:\n  a.tar: 0x10\n",
           "shard_counts:\n  a.tar: 1 # one\n",
           "shard_counts:\n  a.tar: 99999999999\n",
           "shard_counts:\n  \"a\\x41.tar\": 1\n",
           "shard_counts:\n  ? a.tar\n  : 1\n",
           "shard_counts:\n  &a a.tar: 1\n",
           "shard_counts:\n  - a.tar: 1\n",
           "shard_counts:\n  'a.tar: 1\n",
           "shard_counts:\n  'a'b': 1\n",
           "shard_counts:\n  a.tar:\n",
           "shard_counts:\n  a.tar: 1\nshard_counts:\n  a.tar: 2\n",
       }) {
    CHECK(!parse_energon_yaml(wrong));
  }
}
