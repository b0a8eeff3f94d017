// Names of hosts, and resolvers of every kind.

#include <atomic>
#include <chrono>
#include <thread>

#include "io/http_fixture.h"
#include "support/catch.h"
#include "support/http_simulation.h"
#include "support/scripted_resolver.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string url_of(std::uint16_t port) { return "http://host.test:" + std::to_string(port) + "/"; }

Result<ReadOutcome> read(Store& store, Bytes& out) {
  out.assign(1000, std::byte{});
  return read_blocking(store, "object", 0, out);
}

// Reads from a host whose name the resolver is asked for.
Result<ReadOutcome> read_by_name(HttpSimulation& web, const ScriptedResolver& resolver) {
  web.await([&] { return resolver.is_busy(); });
  auto store = web.open(url_of(web.origin.port()));
  Bytes out;
  return read(*store, out);
}

HttpOptions without_patience() {
  HttpOptions options;
  options.outage_s = 0;
  return options;
}

}  // namespace

TEST_CASE("a name that vanishes for a minute after its host has answered costs no read") {
  for (const LookUp meanwhile : {LookUp::no_such_name, LookUp::try_again, LookUp::nothing}) {
    INFO(static_cast<int>(meanwhile));
    std::atomic<bool> gone = false;
    ScriptedResolver resolver([&](std::size_t) { return gone ? meanwhile : LookUp::localhost; });
    HttpSimulation web;
    web.await([&] { return resolver.is_busy(); });
    web.at(10, [&] {
      gone = true;
      web.origin.down();
    });
    web.at(70, [&] {
      gone = false;
      web.origin.up();
    });
    web.origin.put("/object", pattern(1000));
    web.origin.put("/slow", pattern(1000));
    web.origin.script([](const OriginRequest& request) {
      OriginAnswer answer;
      if (request.target == "/slow") answer.delay = std::chrono::seconds(9);
      return answer;
    });
    auto store = web.open(url_of(web.origin.port()));
    Bytes out;
    REQUIRE(read(*store, out));
    Bytes slow(1000);
    REQUIRE(read_blocking(*store, "slow", 0, slow));  // time goes on, to second 9
    web.origin.script([](const OriginRequest&) {
      OriginAnswer answer;
      answer.delay = std::chrono::seconds(5);
      return answer;
    });
    const auto outcome = read(*store, out);  // its host goes while it waits
    INFO((outcome ? std::string() : outcome.error().to_string()));
    REQUIRE(outcome);
    CHECK(out == pattern(1000));
    CHECK(web.now_s() >= 70);
    CHECK(web.io->counters().outages == 1);
    CHECK(web.io->counters().failures == 0);
  }
}

TEST_CASE("a name that never was there fails at the first request") {
  ScriptedResolver resolver([](std::size_t) { return LookUp::no_such_name; });
  HttpSimulation web;
  const auto outcome = read_by_name(web, resolver);
  REQUIRE(!outcome);
  CHECK(outcome.error().code() == ErrorCode::unavailable);
  CHECK_THAT(outcome.error().to_string(),
             ContainsSubstring("resolve host") && ContainsSubstring("host.test"));
  CHECK(web.io->counters().requests == 1);
  CHECK(web.now_s() < 3);
}

TEST_CASE("a look-up that hangs ends with the time to connect") {
  ScriptedResolver resolver([](std::size_t) { return LookUp::nothing; });
  HttpSimulation web(without_patience());
  const auto outcome = read_by_name(web, resolver);
  REQUIRE(!outcome);
  CHECK_THAT(outcome.error().message(), ContainsSubstring("no connection within 3 s"));
  CHECK(web.now_s() >= 9);
  CHECK(web.now_s() <= 10);
  CHECK(resolver.hanging() == 3);
}

TEST_CASE("a resolver that hangs when asked why is not waited for longer") {
  // libcurl hears that there is no such name; who asks again hears nothing.
  ScriptedResolver resolver(
      [](std::size_t number) { return number % 2 == 1 ? LookUp::no_such_name : LookUp::nothing; });
  HttpSimulation web(without_patience());
  const auto outcome = read_by_name(web, resolver);
  REQUIRE(!outcome);
  CHECK_THAT(outcome.error().message(), ContainsSubstring("resolve host"));
  CHECK(web.io->counters().requests == 3);  // it may have been the resolver
  CHECK(web.now_s() >= 9);
  CHECK(web.now_s() <= 11);
}

TEST_CASE("close does not wait for a resolver that hangs") {
  ScriptedResolver resolver([](std::size_t) { return LookUp::nothing; });
  constexpr std::size_t kReads = 40;
  for (int round = 0; round < 3; ++round) {
    HttpFixture web;
    auto store = *web.io->open(*Uri::parse(url_of(web.origin.port())));
    std::atomic<std::size_t> cancelled = 0;
    std::vector<Bytes> out(kReads, Bytes(10));
    std::vector<ReadRequest> requests(kReads);
    for (std::size_t i = 0; i < kReads; ++i) {
      requests[i].object = "object";
      requests[i].out = out[i];
      requests[i].done = [&](Result<ReadOutcome> outcome) {
        if (!outcome && outcome.error().code() == ErrorCode::cancelled) ++cancelled;
      };
    }
    const auto before = resolver.hanging();
    store->read(requests);
    while (resolver.hanging() == before) std::this_thread::yield();
    const auto began = std::chrono::steady_clock::now();
    web.io->close();
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(2));  // promised: 200 ms
    CHECK(cancelled == kReads);
  }
}
