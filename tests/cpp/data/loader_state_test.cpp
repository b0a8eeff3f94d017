#include "headpond/loader_state.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "headpond/steps.h"
#include "support/catch.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;
using nlohmann::ordered_json;

namespace {

LoaderState sample_state() {
  LoaderState state;
  state.order = {"0123456789abcdef0123456789abcdef",
                 1'281'167,
                 "fedcba9876543210fedcba9876543210",
                 7,
                 8,
                 ShuffleMode::window,
                 16'384,
                 Sampler::kVersion};
  state.epoch = 3;
  state.cursor = 40'960;
  state.pass_step = 17;
  state.group = {12, 32'768};
  return state;
}

// The state's JSON after a change by hand.
template <class Change>
std::string changed(Change&& change) {
  ordered_json tree = ordered_json::parse(sample_state().to_json());
  change(tree);
  return tree.dump();
}

std::string error_of(const std::string& text) {
  const auto state = LoaderState::from_json(text);
  REQUIRE(!state);
  CHECK(state.error().code() == ErrorCode::state_mismatch);
  return state.error().to_string();
}

}  // namespace

TEST_CASE("LoaderState: JSON gives back the same state, whatever its numbers") {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  std::vector<LoaderState> states{LoaderState{}, sample_state()};
  states.push_back(sample_state());
  states.back().order = {"f", kMax, "", kMax, kMax, ShuffleMode::full, 0, 1};
  states.back().epoch = states.back().cursor = states.back().pass_step = kMax;
  states.back().ended = true;
  for (const auto& state : states) {
    const auto back = LoaderState::from_json(state.to_json());
    REQUIRE(back);
    CHECK(*back == state);
    CHECK(back->to_json() == state.to_json());
  }
}

TEST_CASE("LoaderState: the largest state stays under 1 KiB") {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  LoaderState state = sample_state();
  state.order = {std::string(32, 'f'), kMax, std::string(32, 'f'),           kMax, kMax,
                 ShuffleMode::window,  kMax, std::numeric_limits<int>::max()};
  state.epoch = state.cursor = state.pass_step = kMax;
  state.group = {kMax, kMax};
  CHECK(state.to_json().size() < 1024);
}

TEST_CASE("LoaderState: version 1 reads what version 1 wrote") {
  const auto state = LoaderState::from_json(
      R"({"version":1,"fingerprint":"0123456789abcdef0123456789abcdef","n":1281167,)"
      R"("size_digest":"fedcba9876543210fedcba9876543210","seed":7,"augmentation_seed":8,)"
      R"("mode":"window","window":16384,"sampler_version":1,"epoch":3,"cursor":40960,)"
      R"("pass_step":17,"group":{"first_shard":12,"cursor":32768},"ended":false})");
  REQUIRE(state);
  CHECK(*state == sample_state());
}

TEST_CASE("LoaderState: indented and reordered JSON is the same state") {
  ordered_json tree = ordered_json::parse(sample_state().to_json());
  CHECK(*LoaderState::from_json(tree.dump(4)) == sample_state());
  ordered_json reversed = ordered_json::object();
  std::vector<std::string> names;
  for (const auto& [name, value] : tree.items()) names.insert(names.begin(), name);
  for (const auto& name : names) reversed[name] = tree[name];
  CHECK(*LoaderState::from_json(reversed.dump()) == sample_state());
}

TEST_CASE("LoaderState: each entry is needed, and its absence is named") {
  const ordered_json tree = ordered_json::parse(sample_state().to_json());
  for (const auto& [name, value] : tree.items()) {
    const std::string entry = name;
    CHECK_THAT(error_of(changed([&](auto& t) { t.erase(entry); })),
               ContainsSubstring('"' + entry + "\" is missing"));
  }
  for (const std::string entry : {"first_shard", "cursor"}) {
    CHECK_THAT(error_of(changed([&](auto& t) { t["group"].erase(entry); })),
               ContainsSubstring("\"group." + entry + "\" is missing"));
  }
}

TEST_CASE("LoaderState: an entry of another type is refused by name, value and expectation") {
  const std::vector<ordered_json> values{nullptr, -1,   1.5, 3.0,
                                         "x",     true, {1}, ordered_json::object()};
  const ordered_json tree = ordered_json::parse(sample_state().to_json());
  for (const auto& [name, value] : tree.items()) {
    const std::string entry = name;
    for (const auto& other : values) {
      if (entry == "ended" && other == true) continue;
      if (entry != "group" && entry != "mode" && value.is_string() && other.is_string()) continue;
      if (entry == "group" && other.is_object()) continue;
      if (entry == "n" && other.is_null()) continue;  // not known yet
      INFO(entry << " " << other.dump());
      CHECK_THAT(error_of(changed([&](auto& t) { t[entry] = other; })),
                 ContainsSubstring("\"" + entry + "\" is"));
    }
  }
  CHECK_THAT(error_of(changed([](auto& t) { t["n"] = -1; })),
             ContainsSubstring("\"n\" is -1, not a whole number of 0 to 18446744073709551615"));
  CHECK_THAT(error_of(changed([](auto& t) { t["mode"] = "all"; })),
             ContainsSubstring("\"mode\" is \"all\", not none, full or window"));
}

TEST_CASE("LoaderState: a number of samples that one side does not know is not compared") {
  LoaderState state = sample_state();
  state.order.n.reset();
  const auto read = LoaderState::from_json(state.to_json());
  REQUIRE(read);
  CHECK(*read == state);
  CHECK(check_compatible(state.order, sample_state().order));
  CHECK(check_compatible(sample_state().order, state.order));
}

TEST_CASE("LoaderState: numbers that JSON does not have or 64 bits do not hold are refused") {
  const auto with_n = [](const std::string& number) {
    std::string text = sample_state().to_json();
    return text.replace(text.find("1281167"), 7, number);
  };
  for (const char* number :
       {"NaN", "Infinity", "-Infinity", "0x10", "01", "1_000", "+1", "1e999"}) {
    CHECK_THAT(error_of(with_n(number)), ContainsSubstring("not JSON"));
  }
  for (const char* number : {"18446744073709551616", "1281167.0", "1e7", "-0.0", "-0",
                             "99999999999999999999999999999999999999999999"}) {
    INFO(number);
    CHECK_THAT(error_of(with_n(number)), ContainsSubstring("\"n\" is"));
  }
  CHECK_THAT(error_of(changed([](auto& t) { t["sampler_version"] = 2147483648u; })),
             ContainsSubstring("sampler_version"));
}

TEST_CASE("LoaderState: what is not a state is refused with the reason") {
  for (const char* text : {"", " ", "{", "}", "nul", "{\"a\":}", "{'a':1}", "{}x", "\xff\xfe",
                           "[1,", "{\"a\":\"\xff\"}", "{\"version\":1,}", "// {}"}) {
    INFO(text);
    CHECK_THAT(error_of(text), ContainsSubstring("not JSON"));
  }
  for (const char* text : {"[]", "null", "1", "\"text\"", "[{}]"}) {
    CHECK_THAT(error_of(text), ContainsSubstring("not a JSON object"));
  }
  CHECK_THAT(error_of("{}"), ContainsSubstring("\"version\" is missing"));
  CHECK_THAT(error_of(changed([](auto& t) { t["version"] = 2; })),
             ContainsSubstring("version 2, and this headpond reads version 1"));
  CHECK_THAT(error_of(changed([](auto& t) { t["version"] = 0; })), ContainsSubstring("version 0"));
  CHECK_THAT(error_of(changed([](auto& t) { t["workers"] = 2; })),
             ContainsSubstring("\"workers\" is unknown"));
  CHECK_THAT(error_of(changed([](auto& t) { t["group"]["x"] = 2; })),
             ContainsSubstring("\"group.x\" is unknown"));
}

TEST_CASE("LoaderState: an entry that stands twice is refused") {
  std::string text = sample_state().to_json();
  text.insert(1, "\"seed\":9,");
  CHECK_THAT(error_of(text), ContainsSubstring("\"seed\" stands twice"));
  text = sample_state().to_json();
  text.insert(text.find("\"first_shard\""), "\"cursor\":0,");
  CHECK_THAT(error_of(text), ContainsSubstring("\"cursor\" stands twice"));
}

TEST_CASE("LoaderState: deep and long texts are refused before they cost anything") {
  CHECK_THAT(error_of(std::string(4000, '[')), ContainsSubstring("nested too deeply"));
  CHECK_THAT(error_of(changed([](auto& t) {
               t["group"]["x"] = {{"y", 1}};
             })),
             ContainsSubstring("nested too deeply"));
  CHECK_THAT(error_of(std::string(4097, ' ')), ContainsSubstring("4097 bytes"));
  CHECK_THAT(error_of(std::string(8'000'000, '[')), ContainsSubstring("8000000 bytes"));
  CHECK_THAT(error_of(changed([](auto& t) { t["fingerprint"] = std::string(65, 'a'); })),
             ContainsSubstring("\"fingerprint\" is"));
}

TEST_CASE("LoaderState: control characters of a hostile text do not reach the message") {
  const std::string message = error_of(changed([](auto& t) { t["fingerprint"] = "\x1b[2J\n"; }));
  for (const char c : message) CHECK(static_cast<unsigned char>(c) >= 0x20);
  CHECK_THAT(error_of(changed([](auto& t) { t["\x1b[2J"] = 1; })), ContainsSubstring("\\u001b"));
  std::string twice = sample_state().to_json();
  twice.insert(1, "\"\\u001b\":1,\"\\u001b\":2,");
  for (const char c : error_of(twice)) CHECK(static_cast<unsigned char>(c) >= 0x20);
}

TEST_CASE("LoaderState: a cursor behind the end or before its group is refused with both numbers") {
  CHECK_THAT(error_of(changed([](auto& t) { t["cursor"] = 1'281'168; })),
             ContainsSubstring("1281168, past the end of 1281167 samples"));
  CHECK_THAT(error_of(changed([](auto& t) { t["group"]["cursor"] = 40'961; })),
             ContainsSubstring("40961, past the cursor 40960"));
  const auto at_end = LoaderState::from_json(changed([](auto& t) { t["cursor"] = 1'281'167; }));
  CHECK(at_end);
}

TEST_CASE("LoaderState: no cut or flipped byte of a state crashes or passes for another dataset") {
  const std::string text = sample_state().to_json();
  for (std::size_t length = 0; length < text.size(); ++length) {
    CHECK(!LoaderState::from_json(std::string_view(text).substr(0, length)));
  }
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = text;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      const auto state = LoaderState::from_json(bad);
      // A digit that became another digit is a state, and says so when printed.
      if (state) REQUIRE(LoaderState::from_json(state->to_json()) == *state);
    }
  }
}

TEST_CASE("OrderIdentity: the same identity fits, and each difference is named with both values") {
  const OrderIdentity one = sample_state().order;
  CHECK(check_compatible(one, one));

  const auto refusal = [&](auto&& change) {
    OrderIdentity other = one;
    change(other);
    const auto result = check_compatible(one, other);
    REQUIRE(!result);
    CHECK(result.error().code() == ErrorCode::state_mismatch);
    return result.error().to_string();
  };
  CHECK_THAT(refusal([](auto& o) { o.fingerprint = "abc"; }),
             ContainsSubstring("fingerprint is \"0123456789abcdef0123456789abcdef\" in the state "
                               "and \"abc\" here"));
  CHECK_THAT(refusal([](auto& o) { o.n = 5; }),
             ContainsSubstring("number of samples is 1281167 in the state and 5 here"));
  CHECK_THAT(refusal([](auto& o) { o.size_digest = "d"; }),
             ContainsSubstring("\"fedcba9876543210fedcba9876543210\" in the state and \"d\" here"));
  CHECK_THAT(refusal([](auto& o) { o.seed = 9; }),
             ContainsSubstring("the seed is 7 in the state and 9 here"));
  CHECK_THAT(refusal([](auto& o) { o.augmentation_seed = 9; }),
             ContainsSubstring("augmentation seed is 8 in the state and 9 here"));
  CHECK_THAT(refusal([](auto& o) { o.mode = ShuffleMode::full; }),
             ContainsSubstring("shuffle mode is \"window\" in the state and \"full\" here"));
  CHECK_THAT(refusal([](auto& o) { o.window = 9; }),
             ContainsSubstring("window is 16384 in the state and 9 here"));
  CHECK_THAT(refusal([](auto& o) { o.sampler_version = 9; }),
             ContainsSubstring("sampler version is 1 in the state and 9 here"));
}

TEST_CASE("OrderIdentity: a digest of sizes that one side does not know is no difference") {
  OrderIdentity unknown = sample_state().order;
  unknown.size_digest.clear();
  CHECK(check_compatible(sample_state().order, unknown));
  CHECK(check_compatible(unknown, sample_state().order));
}

TEST_CASE("LoaderState: a chain of many saves and loads equals one uninterrupted pass") {
  const Sampler sampler = Sampler::window({10, 10, 10, 10}, 5, 15);
  std::vector<std::uint64_t> whole(40);
  sampler.order(0)->indices(0, 1, whole);

  std::vector<std::uint64_t> pieces;
  LoaderState state;
  state.order.n = 40;
  std::string last;
  for (std::uint64_t world = 1; pieces.size() < 40; world = world % 3 + 1) {
    const std::string text = state.to_json();
    CHECK(text != last);
    last = text;
    state = *LoaderState::from_json(text);
    std::uint64_t next = state.cursor;
    std::vector<std::uint64_t> row;
    for (std::uint64_t rank = 0; rank < world; ++rank) {
      const Steps steps{40, 1, world, rank, false, Uneven::allow};
      const auto step = steps.at(state.cursor);
      if (!step) continue;
      next = step->next;
      std::uint64_t index = 0;
      sampler.order(state.epoch)->indices(steps.position(*step, 0), 1, {&index, 1});
      row.push_back(index);
    }
    pieces.insert(pieces.end(), row.begin(), row.end());
    state.cursor = next;
    state.group = sampler.group_at(0, next);
  }
  CHECK(pieces == whole);
}
