#include "support/store_conformance.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "support/catch.h"

namespace headpond {
namespace {

using Catch::Matchers::ContainsSubstring;

// Starts reads and waits for all of them.
class Reads {
 public:
  ReadRequest request(std::string object, std::uint64_t offset, std::span<std::byte> out,
                      ObjectVersion expected = {}, StopToken stop = {}) {
    const std::size_t index = outcomes_.size();
    outcomes_.emplace_back();
    ReadRequest request{std::move(object), offset, out, std::move(expected),
                        std::move(stop),   {},     {}};
    request.done = [this, index](Result<ReadOutcome> outcome) {
      const std::lock_guard lock(mutex_);
      ++calls_;
      outcomes_[index] = std::move(outcome);
      changed_.notify_all();
    };
    return request;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return calls_ >= outcomes_.size(); });
  }
  Result<ReadOutcome>& operator[](std::size_t index) { return *outcomes_[index]; }
  std::size_t calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<Result<ReadOutcome>>> outcomes_;
  std::size_t calls_ = 0;
};

Bytes read_all(Store& store, const std::string& object, std::uint64_t offset, std::size_t size,
               const ObjectVersion& expected = {}) {
  Bytes out(size, std::byte{0xEE});
  auto outcome = read_blocking(store, object, offset, out, expected);
  INFO((outcome ? std::string("read") : outcome.error().to_string()));
  REQUIRE(outcome);
  out.resize(outcome->bytes);
  return out;
}

void reads_ranges(StoreFixture& fixture) {
  const Bytes bytes = pattern(100'000);
  fixture.put("folder/object", bytes);
  Store& store = fixture.store();
  for (const std::size_t offset : {0u, 1u, 4095u, 4096u, 50'000u, 99'999u, 100'000u}) {
    for (const std::size_t size : {0u, 1u, 511u, 4096u, 30'001u, 100'000u}) {
      INFO("offset " << offset << " size " << size);
      CHECK(read_all(store, "folder/object", offset, size) == part(bytes, offset, size));
    }
  }
}

void reads_many_at_once(StoreFixture& fixture) {
  constexpr std::size_t kObjects = 40;
  std::vector<Bytes> objects;
  for (std::size_t i = 0; i < kObjects; ++i) {
    objects.push_back(pattern(i * 997, i));
    fixture.put("d" + std::to_string(i % 3) + "/" + std::to_string(i), objects.back());
  }
  std::vector<ObjectVersion> versions;
  for (std::size_t i = 0; i < kObjects; ++i) {
    auto info =
        stat_blocking(fixture.store(), "d" + std::to_string(i % 3) + "/" + std::to_string(i));
    REQUIRE(info);
    versions.push_back(info->version);
  }
  Reads reads;
  std::vector<Bytes> out(kObjects * 2);
  std::vector<ReadRequest> requests;
  for (std::size_t i = 0; i < 2 * kObjects; ++i) {
    const std::size_t object = i % kObjects;
    out[i].resize(objects[object].size());
    requests.push_back(
        reads.request("d" + std::to_string(object % 3) + "/" + std::to_string(object), 0, out[i],
                      i < kObjects ? versions[object] : ObjectVersion()));
  }
  fixture.store().read(requests);
  reads.wait();
  for (std::size_t i = 0; i < 2 * kObjects; ++i) {
    REQUIRE(reads[i]);
    CHECK(reads[i]->bytes == out[i].size());
    CHECK(reads[i]->version == versions[i % kObjects]);
    CHECK(out[i] == objects[i % kObjects]);
  }
  CHECK(reads.calls() == 2 * kObjects);
}

void errors_name_the_object(StoreFixture& fixture) {
  fixture.put("there", pattern(10));
  Bytes out(4);
  auto missing = read_blocking(fixture.store(), "folder/missing", 2, out);
  REQUIRE(!missing);
  CHECK(missing.error().code() == ErrorCode::not_found);
  CHECK_THAT(missing.error().to_string(), ContainsSubstring("folder/missing"));
  REQUIRE(missing.error().range());
  CHECK(*missing.error().range() == ByteRange{2, 6});
  auto info = stat_blocking(fixture.store(), "folder/missing");
  REQUIRE(!info);
  CHECK(info.error().code() == ErrorCode::not_found);
  const Piece piece{0, out};
  auto now = fixture.store().read_now("folder/missing", {}, std::span(&piece, 1), Wait::allowed);
  if (fixture.has_blocking_path()) {
    REQUIRE(!now);
    CHECK(now.error().code() == ErrorCode::not_found);
  }
}

void versions_are_compared(StoreFixture& fixture) {
  fixture.put("object", pattern(5000, 1));
  auto first = stat_blocking(fixture.store(), "object");
  REQUIRE(first);
  CHECK(first->version.size == 5000);
  CHECK(read_all(fixture.store(), "object", 100, 50, first->version) ==
        part(pattern(5000, 1), 100, 50));
  fixture.put("object", pattern(5000, 2));
  auto second = stat_blocking(fixture.store(), "object");
  REQUIRE(second);
  CHECK(second->version != first->version);
  CHECK(!first->version.accepts(second->version));
  fixture.put("object", pattern(6000, 3));
  for (const std::size_t size : {5000u, 50u}) {
    Bytes out(size);
    auto old = read_blocking(fixture.store(), "object", 0, out, second->version);
    REQUIRE(!old);
    CHECK(old.error().code() == ErrorCode::object_changed);
    CHECK_THAT(old.error().to_string(),
               ContainsSubstring("5000 bytes") && ContainsSubstring("6000 bytes"));
  }
  CHECK(read_all(fixture.store(), "object", 0, 6000) == pattern(6000, 3));
}

void read_now_fills_pieces(StoreFixture& fixture) {
  const Bytes bytes = pattern(300'000);
  fixture.put("object", bytes);
  auto info = stat_blocking(fixture.store(), "object");
  REQUIRE(info);
  std::vector<Bytes> out;
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < 50; ++i) out.emplace_back(i * 11);
  for (std::size_t i = 0; i < 50; ++i) pieces.push_back({(i * 7919) % 290'000, out[i]});
  auto filled = fixture.store().read_now("object", info->version, pieces, Wait::allowed);
  REQUIRE(filled);
  if (!fixture.has_blocking_path()) {
    CHECK(*filled == 0);
    return;
  }
  REQUIRE(*filled == pieces.size());
  for (std::size_t i = 0; i < 50; ++i)
    CHECK(out[i] == part(bytes, pieces[i].offset, out[i].size()));
  // The same without waiting: whatever is said to be filled is right.
  for (auto& each : out) std::fill(each.begin(), each.end(), std::byte{0});
  auto warm = fixture.store().read_now("object", info->version, pieces, Wait::never);
  REQUIRE(warm);
  for (std::size_t i = 0; i < *warm; ++i)
    CHECK(out[i] == part(bytes, pieces[i].offset, out[i].size()));
  // And of a whole object.
  Bytes whole(bytes.size());
  const Piece all{0, whole};
  auto one = fixture.store().read_now("object", info->version, std::span(&all, 1), Wait::allowed);
  REQUIRE(one);
  CHECK(*one == 1);
  CHECK(whole == bytes);
}

void read_now_past_the_end(StoreFixture& fixture) {
  if (!fixture.has_blocking_path()) return;
  fixture.put("object", pattern(1000));
  auto info = stat_blocking(fixture.store(), "object");
  REQUIRE(info);
  Bytes out(20);
  for (const std::uint64_t offset : {std::uint64_t{981}, std::uint64_t{1000}, std::uint64_t{5000},
                                     std::numeric_limits<std::uint64_t>::max() - 4}) {
    const Piece piece{offset, out};
    auto known =
        fixture.store().read_now("object", info->version, std::span(&piece, 1), Wait::allowed);
    REQUIRE(!known);
    CHECK(known.error().code() == ErrorCode::object_changed);
    auto unknown = fixture.store().read_now("object", {}, std::span(&piece, 1), Wait::allowed);
    REQUIRE(!unknown);
    CHECK(unknown.error().code() == ErrorCode::corrupt_data);
  }
}

void reads_past_the_end_are_short(StoreFixture& fixture) {
  fixture.put("object", pattern(1000));
  Bytes out(20);
  for (const std::uint64_t offset : {std::uint64_t{1000}, std::uint64_t{1} << 40,
                                     std::numeric_limits<std::uint64_t>::max() - 4}) {
    auto outcome = read_blocking(fixture.store(), "object", offset, out);
    REQUIRE(outcome);
    CHECK(outcome->bytes == 0);
  }
}

void empty_objects(StoreFixture& fixture) {
  fixture.put("empty", {});
  auto info = stat_blocking(fixture.store(), "empty");
  REQUIRE(info);
  CHECK(info->version.size == 0);
  CHECK(read_all(fixture.store(), "empty", 0, 0, info->version).empty());
  CHECK(read_all(fixture.store(), "empty", 0, 10).empty());
  if (!fixture.has_blocking_path()) return;
  const Piece piece{0, {}};
  auto now = fixture.store().read_now("empty", info->version, std::span(&piece, 1), Wait::allowed);
  REQUIRE(now);
  CHECK(*now == 1);
}

// Objects whose size is not known bring it with them.
void whole_objects_of_unknown_size(StoreFixture& fixture) {
  for (const std::size_t size : {0u, 1u, 1000u, 70'000u, 1'500'000u}) {
    INFO("size " << size);
    const Bytes bytes = pattern(size, size);
    fixture.put("object", bytes);
    auto info = stat_blocking(fixture.store(), "object");
    REQUIRE(info);
    for (const auto& expected : {ObjectVersion(), info->version}) {
      Bytes out;
      std::vector<std::uint64_t> asked;
      Reads reads;
      auto request = reads.request("object", 0, {}, expected);
      request.allocate = [&](std::uint64_t bytes_wanted) {
        asked.push_back(bytes_wanted);
        out.resize(bytes_wanted);
        return std::span(out);
      };
      fixture.store().read(std::span(&request, 1));
      reads.wait();
      INFO((reads[0] ? std::string("read") : reads[0].error().to_string()));
      REQUIRE(reads[0]);
      CHECK(asked == std::vector<std::uint64_t>{size});
      CHECK(reads[0]->bytes == size);
      CHECK(reads[0]->version == info->version);
      CHECK(out == bytes);
    }
  }
}

void refused_memory_is_an_error(StoreFixture& fixture) {
  fixture.put("object", pattern(1000));
  for (const bool nothing : {true, false}) {
    Bytes too_little(10);
    Reads reads;
    auto request = reads.request("object", 0, {});
    request.allocate = [&](std::uint64_t) {
      return nothing ? std::span<std::byte>() : std::span(too_little);
    };
    fixture.store().read(std::span(&request, 1));
    reads.wait();
    REQUIRE(!reads[0]);
    CHECK(reads[0].error().code() == ErrorCode::resource_limit);
    CHECK_THAT(reads[0].error().to_string(),
               ContainsSubstring("object") && ContainsSubstring("1000 bytes"));
  }
  bool asked = false;
  Reads reads;
  auto request = reads.request("missing", 0, {});
  request.allocate = [&](std::uint64_t) {
    asked = true;
    return std::span<std::byte>();
  };
  fixture.store().read(std::span(&request, 1));
  reads.wait();
  REQUIRE(!reads[0]);
  CHECK(reads[0].error().code() == ErrorCode::not_found);
  CHECK(!asked);
}

void lists_in_name_order(StoreFixture& fixture) {
  if (!fixture.can_list()) {
    auto refused = list_blocking(fixture.store());
    REQUIRE(!refused);
    CHECK(refused.error().code() == ErrorCode::unsupported);
    return;
  }
  // "-" sorts before "/" and "0" after it: folders are not simply put between files.
  std::vector<std::string> names = {"a/1",   "a/2",  "a-b", "a0", "b/x/deep",
                                    "b/x-y", "b/xz", "A",   "z",  "\xC3\xA9"};
  for (std::size_t i = 0; i < names.size(); ++i) fixture.put(names[i], pattern(i));
  std::sort(names.begin(), names.end());
  auto all = list_blocking(fixture.store());
  REQUIRE(all);
  std::vector<std::string> found;
  for (const auto& object : *all) found.push_back(object.name);
  CHECK(found == names);
  for (const auto& object : *all) {
    auto info = stat_blocking(fixture.store(), object.name);
    REQUIRE(info);
    CHECK(info->version == object.version);
  }
  for (const std::string prefix : {"a", "a/", "a/1", "b/x", "b/x/", "nothing", "nothing/"}) {
    std::vector<std::string> expected;
    std::copy_if(names.begin(), names.end(), std::back_inserter(expected),
                 [&](const std::string& name) { return name.starts_with(prefix); });
    auto some = list_blocking(fixture.store(), prefix);
    INFO("prefix " << prefix << (some ? "" : some.error().to_string()));
    REQUIRE(some);
    std::vector<std::string> names_found;
    for (const auto& object : *some) names_found.push_back(object.name);
    CHECK(names_found == expected);
  }
}

void lists_what_is_wanted(StoreFixture& fixture) {
  if (!fixture.can_list()) return;
  for (const std::string name : {"a/1.x", "a/2.y", "b/3.x", "c.x"}) fixture.put(name, pattern(1));
  std::vector<std::string> found;
  ListRequest request;
  request.empty_folders = true;
  request.wanted = [](std::string_view name) {
    return name == "a/" || (name.ends_with(".x") && !name.starts_with("b/"));
  };
  request.page = [&](Result<std::vector<ObjectInfo>> page) {
    REQUIRE(page);
    for (const auto& object : *page) found.push_back(object.name);
  };
  fixture.store().list(std::move(request));
  CHECK(found == std::vector<std::string>{"a/1.x", "c.x"});
}

void a_stopped_read_is_cancelled(StoreFixture& fixture) {
  fixture.put("object", pattern(1000));
  StopSource source;
  source.request_stop();
  Bytes out(100);
  Reads reads;
  auto request = reads.request("object", 0, out, {}, source.get_token());
  fixture.store().read(std::span(&request, 1));
  reads.wait();
  REQUIRE(!reads[0]);
  CHECK(reads[0].error().code() == ErrorCode::cancelled);
}

void closing_answers_everything_once(StoreFixture& fixture) {
  const Bytes bytes = pattern(1 << 20);
  fixture.put("object", bytes);
  constexpr std::size_t kReads = 200;
  Reads reads;
  std::vector<Bytes> out(kReads, Bytes(50'000));
  std::vector<ReadRequest> requests;
  for (std::size_t i = 0; i < kReads; ++i)
    requests.push_back(reads.request("object", i * 3001, out[i]));
  fixture.store().read(requests);
  fixture.store().close();
  CHECK(reads.calls() == kReads);
  for (std::size_t i = 0; i < kReads; ++i) {
    if (reads[i]) {
      CHECK(out[i] == part(bytes, i * 3001, out[i].size()));
    } else {
      CHECK(reads[i].error().code() == ErrorCode::cancelled);
    }
  }
  fixture.store().close();
  auto late = read_blocking(fixture.store(), "object", 0, out[0]);
  REQUIRE(!late);
  CHECK(late.error().code() == ErrorCode::closed);
  auto info = stat_blocking(fixture.store(), "object");
  REQUIRE(!info);
  CHECK(info.error().code() == ErrorCode::closed);
  auto listed = list_blocking(fixture.store());
  REQUIRE(!listed);
  CHECK(listed.error().code() == ErrorCode::closed);
}

void many_threads(StoreFixture& fixture) {
  const Bytes bytes = pattern(2 << 20, 9);
  fixture.put("object", bytes);
  auto info = stat_blocking(fixture.store(), "object");
  REQUIRE(info);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Bytes out(10'000);
      for (std::size_t i = 0; i < 50; ++i) {
        const std::size_t offset = (i * 40'009 + t * 7) % (bytes.size() - out.size());
        const Piece piece{offset, out};
        auto now =
            fixture.store().read_now("object", info->version, std::span(&piece, 1), Wait::never);
        if (!now) {
          ++wrong;
        } else if (*now == 0) {
          auto outcome = read_blocking(fixture.store(), "object", offset, out, info->version);
          if (!outcome || outcome->bytes != out.size()) ++wrong;
        }
        if (out != part(bytes, offset, out.size())) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

}  // namespace

void store_conformance(const MakeStoreFixture& make) {
  auto fixture = make();
  SECTION("ranges are read, and end with the object") { reads_ranges(*fixture); }
  SECTION("many reads at once are each done once") { reads_many_at_once(*fixture); }
  SECTION("errors name the object and the range") { errors_name_the_object(*fixture); }
  SECTION("another version than expected is object_changed") { versions_are_compared(*fixture); }
  SECTION("read_now fills pieces") { read_now_fills_pieces(*fixture); }
  SECTION("read_now past the end is an error") { read_now_past_the_end(*fixture); }
  SECTION("read past the end gives no bytes") { reads_past_the_end_are_short(*fixture); }
  SECTION("empty objects are objects") { empty_objects(*fixture); }
  SECTION("whole objects bring their size") { whole_objects_of_unknown_size(*fixture); }
  SECTION("refused memory is an error") { refused_memory_is_an_error(*fixture); }
  SECTION("listings come in name order, by prefix") { lists_in_name_order(*fixture); }
  SECTION("listings leave out what is not wanted") { lists_what_is_wanted(*fixture); }
  SECTION("a stopped read is cancelled") { a_stopped_read_is_cancelled(*fixture); }
  SECTION("closing answers everything once and refuses the rest") {
    closing_answers_everything_once(*fixture);
  }
  SECTION("many threads read at once") { many_threads(*fixture); }
}

}  // namespace headpond
