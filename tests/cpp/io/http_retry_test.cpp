#include <atomic>
#include <condition_variable>
#include <mutex>

#include "support/catch.h"
#include "support/http_simulation.h"

using namespace headpond;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

OriginAnswer status(int code, std::vector<std::string> headers = {}) {
  OriginAnswer answer;
  answer.status = code;
  answer.headers = std::move(headers);
  answer.body = "the reason";
  return answer;
}

// Fails `times` in that way, then is a good server; per method and target.
ScriptedOrigin::Script first(std::size_t times, OriginAnswer answer) {
  return [times, answer = std::move(answer)](const OriginRequest& request) {
    return request.number <= times ? answer : OriginAnswer();
  };
}

Error error_of(Store& store, const std::string& object, std::size_t size = 100) {
  Bytes out(size);
  auto outcome = read_blocking(store, object, 0, out);
  REQUIRE(!outcome);
  return std::move(outcome).error();
}

Bytes bytes_read(Store& store, const std::string& object, std::uint64_t offset, std::size_t size,
                 const ObjectVersion& expected = {}) {
  Bytes out(size);
  auto outcome = read_blocking(store, object, offset, out, expected);
  INFO((outcome ? std::string("read") : outcome.error().to_string()));
  REQUIRE(outcome);
  out.resize(outcome->bytes);
  return out;
}

HttpOptions with_retries(unsigned retries) {
  HttpOptions options;
  options.retries = retries;
  return options;
}

}  // namespace

TEST_CASE("refusals of a live host are tried again, as often as `retries` says") {
  for (const int code : {408, 425, 429, 500, 503}) {
    for (const unsigned retries : {0u, 1u, 5u}) {
      INFO(code << " with " << retries);
      HttpSimulation web(with_retries(retries));
      web.origin.put("/object", pattern(100));
      web.origin.script(first(retries, status(code)));
      CHECK((bytes_read(*web.store, "object", 0, 100) == pattern(100)));
      CHECK(web.origin.requests() == retries + 1);
      web.origin.script([&](const OriginRequest&) { return status(code); });
      const Error error = error_of(*web.store, "object");
      CHECK(error.code() == ErrorCode::unavailable);
      CHECK(web.origin.requests() == 2 * (retries + 1));
      CHECK_THAT(error.to_string(), ContainsSubstring("HTTP " + std::to_string(code)) &&
                                        ContainsSubstring("the reason") &&
                                        ContainsSubstring("object[0, 100)"));
      if (retries > 0) {
        CHECK_THAT(error.to_string(),
                   ContainsSubstring("after " + std::to_string(retries + 1) + " attempts in "));
      }
    }
  }
}

TEST_CASE("what another attempt would not change is final") {
  for (const int code : {400, 401, 403, 404, 410, 414, 501, 505}) {
    INFO(code);
    HttpSimulation web;
    web.origin.script([&](const OriginRequest&) { return status(code); });
    const Error error = error_of(*web.store, "object");
    CHECK(web.origin.requests() == 1);
    CHECK_THAT(error.message(), ContainsSubstring("HTTP " + std::to_string(code)));
    CHECK(web.now_s() < 1);
  }
}

TEST_CASE("a slow-down of three seconds is sat out") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    HttpIoSeams seams;
    seams.seed = seed;
    HttpSimulation web({}, seams);
    web.origin.put("/object", pattern(100));
    web.origin.script(
        [&](const OriginRequest&) { return web.now_s() < 3 ? status(503) : OriginAnswer(); });
    CHECK((bytes_read(*web.store, "object", 0, 100) == pattern(100)));
  }
}

TEST_CASE("Retry-After holds the whole host back") {
  HttpSimulation web;
  web.origin.put("/object", pattern(100));
  web.origin.put("/other", pattern(100, 2));
  std::vector<double> times;
  web.origin.script([&](const OriginRequest& request) {
    times.push_back(web.now_s());
    return request.target == "/object" && request.number == 1 ? status(503, {"Retry-After: 7"})
                                                              : OriginAnswer();
  });
  CHECK((bytes_read(*web.store, "object", 0, 100) == pattern(100)));
  CHECK((bytes_read(*web.store, "other", 0, 100) == pattern(100, 2)));
  REQUIRE(times.size() == 3);
  CHECK(times[1] >= 7);
  CHECK(times[1] < 7.2);
}

TEST_CASE("Retry-After of an hour counts as 60 s, one that cannot be read as none") {
  for (const auto& [value, least, most] :
       {std::tuple("3600", 60.0, 60.2), std::tuple("1000000000", 60.0, 60.2),
        std::tuple("-1", 0.0, 1.1), std::tuple("soon", 0.0, 1.1), std::tuple("0", 0.0, 0.2)}) {
    INFO(value);
    HttpSimulation web;
    web.origin.put("/object", pattern(100));
    web.origin.script(first(1, status(429, {std::string("Retry-After: ") + value})));
    CHECK((bytes_read(*web.store, "object", 0, 100) == pattern(100)));
    CHECK(web.now_s() >= least);
    CHECK(web.now_s() <= most);
  }
}

TEST_CASE("a host that is down is waited for: an outage of 60 s costs no read") {
  HttpSimulation web;
  web.origin.put("/object", pattern(100'000));
  web.origin.down();
  web.at(60, [&] { web.origin.up(); });
  CHECK((bytes_read(*web.store, "object", 0, 100'000) == pattern(100'000)));
  CHECK(web.now_s() >= 60);
  CHECK(web.now_s() <= 81);
  CHECK(web.io->counters().outages == 1);
  CHECK(web.io->counters().failures == 0);
}

TEST_CASE("an outage in the middle of many reads ends with all of them right") {
  HttpSimulation web;
  constexpr std::size_t kReads = 200;
  const Bytes bytes = pattern(3'000'000);
  web.origin.put("/object", bytes);
  std::size_t asked = 0;
  web.origin.script([&](const OriginRequest&) {
    OriginAnswer answer;
    answer.delay = 30ms;
    if (++asked == 60) web.origin.down();
    return answer;
  });
  web.at(60, [&] { web.origin.up(); });
  std::vector<Bytes> out(kReads, Bytes(10'000));
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t done = 0;
  std::size_t failed = 0;
  std::vector<ReadRequest> requests(kReads);
  for (std::size_t i = 0; i < kReads; ++i) {
    requests[i].object = "object";
    requests[i].offset = i * 10'000;
    requests[i].out = out[i];
    requests[i].done = [&](Result<ReadOutcome> outcome) {
      const std::lock_guard lock(mutex);
      ++done;
      if (!outcome) ++failed;
      changed.notify_all();
    };
  }
  web.store->read(requests);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done == kReads; });
  CHECK(failed == 0);
  for (std::size_t i = 0; i < kReads; ++i) CHECK((out[i] == part(bytes, i * 10'000, 10'000)));
  // One probe at a time while it was down.
  CHECK(web.origin.requests() <= kReads + 40);
}

TEST_CASE("an outage that lasts raises the first cause") {
  HttpOptions options;
  options.outage_s = 30;
  HttpSimulation web(options);
  web.origin.down();
  const Error error = error_of(*web.store, "object");
  CHECK(error.code() == ErrorCode::unavailable);
  CHECK(web.now_s() >= 30);
  CHECK(web.now_s() < 34);
  CHECK_THAT(error.to_string(), ContainsSubstring("onnect") && ContainsSubstring("attempts in 3"));
  // And the next read begins anew.
  web.origin.up();
  web.origin.put("/object", pattern(100));
  CHECK((bytes_read(*web.store, "object", 0, 100) == pattern(100)));
}

TEST_CASE("502 and 504 count as a host that is down, 500 and 503 do not") {
  for (const int code : {502, 504}) {
    HttpSimulation web;
    web.origin.put("/object", pattern(100));
    web.origin.script(
        [&](const OriginRequest&) { return web.now_s() < 100 ? status(code) : OriginAnswer(); });
    CHECK((bytes_read(*web.store, "object", 0, 100) == pattern(100)));
    CHECK(web.io->counters().outages == 1);
  }
}

TEST_CASE("the requests to a host that refuses for ever are bounded") {
  HttpSimulation web;
  web.origin.script([&](const OriginRequest&) { return status(503); });
  constexpr std::size_t kReads = 64;
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t done = 0;
  std::vector<Bytes> out(kReads, Bytes(10));
  std::vector<ReadRequest> requests(kReads);
  for (std::size_t i = 0; i < kReads; ++i) {
    requests[i].object = "object" + std::to_string(i);
    requests[i].out = out[i];
    requests[i].done = [&](Result<ReadOutcome> outcome) {
      const std::lock_guard lock(mutex);
      CHECK(!outcome);
      ++done;
      changed.notify_all();
    };
  }
  web.store->read(requests);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done == kReads; });
  CHECK(web.origin.requests() <= kReads * 6);
}

TEST_CASE("a body cut at every eighth goes on where it stopped, on a new connection") {
  const Bytes bytes = pattern(2 << 20);
  for (const bool by_reset : {false, true}) {
    for (std::size_t eighth = 1; eighth < 8; ++eighth) {
      INFO("at " << eighth << (by_reset ? " by reset" : ""));
      HttpSimulation web;
      web.origin.put("/object", bytes);
      OriginAnswer cut;
      cut.cut_at = bytes.size() * eighth / 8;
      cut.reset = by_reset;
      web.origin.script(first(1, cut));
      auto info = stat_blocking(*web.store, "object");
      REQUIRE(info);
      web.origin.put("/unused", {});
      CHECK((bytes_read(*web.store, "object", 0, bytes.size(), info->version) == bytes));
      const auto log = web.origin.log();
      REQUIRE(log.size() == 3);
      CHECK(log[1].header("range").empty());
      CHECK(log[2].connection != log[1].connection);
      CHECK(log[2].header("if-match") == "\"v1\"");
      // A reset may throw away what was under way; a close loses nothing.
      if (!by_reset) {
        CHECK(log[2].header("range") ==
              "bytes=" + std::to_string(*cut.cut_at) + "-" + std::to_string(bytes.size() - 1));
      }
    }
  }
}

TEST_CASE("cuts spend attempts, and the error says where it stood") {
  OriginAnswer cut;
  cut.cut_at = 1000;
  {
    HttpSimulation web(with_retries(5));
    web.origin.put("/object", pattern(10'000));
    web.origin.script(first(5, cut));
    CHECK((bytes_read(*web.store, "object", 0, 10'000) == pattern(10'000)));
  }
  HttpSimulation web(with_retries(2));
  web.origin.put("/object", pattern(10'000));
  web.origin.script(first(100, cut));
  const Error error = error_of(*web.store, "object", 10'000);
  CHECK(error.code() == ErrorCode::unavailable);
  CHECK(web.origin.requests() == 3);
  CHECK_THAT(error.to_string(), ContainsSubstring("object[0, 10000)"));
}

TEST_CASE("progress of 8 MiB gives a cut read its attempts back") {
  HttpSimulation web(with_retries(1));
  const Bytes bytes = pattern(40 << 20);
  web.origin.put("/object", bytes);
  OriginAnswer cut;
  cut.cut_at = 9 << 20;
  web.origin.script(first(100, cut));
  CHECK((bytes_read(*web.store, "object", 0, bytes.size()) == bytes));
}

TEST_CASE("a resumed answer that begins at zero is used from there") {
  for (const std::size_t size : {1u, 1000u, 100'000u}) {
    HttpSimulation web;
    web.origin.put("/object", pattern(size));
    web.origin.script([&](const OriginRequest& request) {
      OriginAnswer answer;
      answer.ignore_range = true;
      if (request.number == 1) answer.cut_at = size * 2 / 5;
      return answer;
    });
    Bytes out;
    std::atomic<bool> done = false;
    ReadRequest request;
    request.object = "object";
    request.allocate = [&](std::uint64_t bytes) {
      out.resize(bytes);
      return std::span(out);
    };
    std::mutex mutex;
    std::condition_variable changed;
    request.done = [&](Result<ReadOutcome> outcome) {
      const std::lock_guard lock(mutex);
      CHECK(outcome);
      done = true;
      changed.notify_all();
    };
    web.store->read(std::span(&request, 1));
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done.load(); });
    CHECK((out == pattern(size)));
  }
}

TEST_CASE("stalls and trickles end within their limits and are tried again") {
  struct Row {
    const char* name;
    OriginAnswer answer;
    double least_s, most_s;
  };
  std::vector<Row> rows(5);
  rows[0].name = "says nothing";
  rows[0].answer.silent = true;
  rows[0].least_s = 10, rows[0].most_s = 11;
  rows[1].name = "headers, then nothing";
  rows[1].answer.stall_at = 0;
  rows[1].least_s = 10, rows[1].most_s = 11;
  rows[2].name = "half the body, then nothing";
  rows[2].answer.stall_at = 50'000;
  rows[2].least_s = 10, rows[2].most_s = 11;
  rows[3].name = "one byte a second";
  rows[3].answer.segment = 1;
  rows[3].answer.between = 1s;
  rows[3].least_s = 30, rows[3].most_s = 31;
  rows[4].name = "8 KiB a second";
  rows[4].answer.segment = 8192;
  rows[4].answer.between = 1s;
  rows[4].least_s = 12, rows[4].most_s = 14;  // done before the window ends
  for (const Row& row : rows) {
    INFO(row.name);
    HttpSimulation web;
    web.origin.put("/object", pattern(100'000));
    web.origin.script(first(1, row.answer));
    CHECK((bytes_read(*web.store, "object", 0, 100'000) == pattern(100'000)));
    CHECK(web.now_s() >= row.least_s);
    CHECK(web.now_s() <= row.most_s);
  }
}

TEST_CASE("8 KiB a second are too slow where there is much to come, 32 KiB are not") {
  for (const std::size_t rate : {std::size_t{8} << 10, std::size_t{32} << 10}) {
    HttpSimulation web(with_retries(0));
    web.origin.put("/object", pattern(3 << 20));
    OriginAnswer slow;
    slow.segment = rate;
    slow.between = 1s;
    web.origin.script(first(1, slow));
    Bytes out(3 << 20);
    auto outcome = read_blocking(*web.store, "object", 0, out);
    CHECK(outcome.has_value() == (rate > (16u << 10)));
    if (!outcome) {
      CHECK(outcome.error().code() == ErrorCode::timed_out);
      CHECK(web.now_s() == Approx(30).margin(1));
    }
  }
}

TEST_CASE("a server that never answers is down, and the error says that time ran out") {
  HttpOptions options;
  options.outage_s = 100;
  HttpSimulation web(options);
  web.origin.script([&](const OriginRequest&) {
    OriginAnswer answer;
    answer.silent = true;
    return answer;
  });
  const Error error = error_of(*web.store, "object");
  CHECK(error.code() == ErrorCode::timed_out);
  CHECK_THAT(error.message(), ContainsSubstring("no byte for 10 s"));
  CHECK(web.now_s() >= 100);
  CHECK(web.now_s() <= 121);
}

TEST_CASE("a kept connection that the server closed is replaced for nothing") {
  HttpSimulation web(with_retries(0));
  web.origin.put("/object", pattern(1000));
  OriginAnswer once;
  once.close_after = true;
  web.origin.script([&](const OriginRequest&) { return once; });
  for (int i = 0; i < 20; ++i) CHECK((bytes_read(*web.store, "object", 0, 1000) == pattern(1000)));
  // Dropped without an answer, at the moment it is used again.
  web.origin.script([&](const OriginRequest& request) {
    OriginAnswer answer;
    answer.drop = request.number % 2 == 0;
    return answer;
  });
  for (int i = 0; i < 20; ++i) CHECK((bytes_read(*web.store, "object", 0, 1000) == pattern(1000)));
}
