#include <map>

#include "support/catch.h"
#include "support/http_simulation.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

OriginAnswer redirect(const std::string& to, int status = 302) {
  OriginAnswer answer;
  answer.status = status;
  answer.headers = {"Location: " + to};
  answer.body = "moved";
  return answer;
}

// Paths that lead elsewhere; all others are served.
ScriptedOrigin::Script leads(std::map<std::string, std::string> targets, int status = 302) {
  return [targets = std::move(targets), status](const OriginRequest& request) {
    const auto found = targets.find(request.target);
    return found == targets.end() ? OriginAnswer() : redirect(found->second, status);
  };
}

Result<ReadOutcome> read(HttpSimulation& web, const std::string& object, Bytes& out) {
  return read_blocking(*web.store, object, 10, out);
}

}  // namespace

TEST_CASE("redirects are followed with the range, whatever their status") {
  for (const int status : {301, 302, 303, 307, 308}) {
    INFO(status);
    HttpSimulation web;
    web.origin.put("/real", pattern(1000));
    web.origin.script(leads({{"/object", "/real"}}, status));
    Bytes out(100);
    REQUIRE(read(web, "object", out));
    CHECK((out == part(pattern(1000), 10, 100)));
    CHECK(web.origin.log()[1].header("range") == "bytes=10-109");
    CHECK(web.io->counters().redirects == 1);
    auto info = stat_blocking(*web.store, "object");
    REQUIRE(info);
    CHECK(info->version.size == 1000);
  }
}

TEST_CASE("five redirects are followed, six are not, and a loop lists its hops") {
  HttpSimulation web;
  web.origin.put("/5", pattern(1000));
  web.origin.put("/6", pattern(1000));
  web.origin.script(leads({{"/a", "/1"}, {"/1", "/2"}, {"/2", "/3"}, {"/3", "/4"}, {"/4", "/5"}}));
  Bytes out(100);
  CHECK(read(web, "a", out));
  web.origin.script(
      leads({{"/a", "/1"}, {"/1", "/2"}, {"/2", "/3"}, {"/3", "/4"}, {"/4", "/5"}, {"/5", "/6"}}));
  CHECK_FALSE(read(web, "a", out));
  web.origin.script(leads({{"/ping", "/pong?sig=canary"}, {"/pong?sig=canary", "/ping"}}));
  const auto before = web.origin.requests();
  auto loop = read(web, "ping", out);
  REQUIRE(!loop);
  CHECK(web.origin.requests() - before == 6);
  CHECK_THAT(loop.error().to_string(),
             ContainsSubstring("more than 5 redirects") && ContainsSubstring("/ping -> ") &&
                 ContainsSubstring("/pong?sig=... -> ") && !ContainsSubstring("canary"));
}

TEST_CASE("redirects that may not be followed are refused without a request") {
  for (const char* target : {"file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/x",
                             "dict://127.0.0.1:11211/x", "https:///x", "http://127.0.0.1:0/"}) {
    INFO(target);
    HttpSimulation web;
    web.origin.put("/real", pattern(1000));
    web.origin.script(leads({{"/object", target}}));
    Bytes out(100);
    auto refused = read(web, "object", out);
    REQUIRE(!refused);
    CHECK(web.origin.requests() == 1);
  }
}

TEST_CASE("headers and credentials go to their own host and to no other") {
  HttpOptions options;
  options.headers = {"Authorization: Bearer canary", "X-Custom: canary"};
  HttpSimulation web(options);
  web.origin.put("/real", pattern(1000));
  // Another port is another origin; the scripted one listens at one only, so the name differs.
  const std::string here = web.origin.url("/real");
  const std::string there = "http://localhost:" + std::to_string(web.origin.port()) + "/real";
  for (const auto& [target, kept] : {std::pair(here, true), std::pair(there, false)}) {
    INFO(target);
    web.origin.script(leads({{"/object", target}}));
    const auto before = web.origin.requests();
    auto store = web.open("http://user:secret@127.0.0.1:" + std::to_string(web.origin.port()));
    Bytes out(100);
    auto outcome = read_blocking(*store, "object", 0, out);
    INFO((outcome ? std::string("read") : outcome.error().to_string()));
    REQUIRE(outcome);
    const auto log = web.origin.log();
    CHECK(log[before].header("x-custom") == "canary");
    CHECK(log[before].headers.count("authorization") == 1);
    CHECK(log[before + 1].header("x-custom") == (kept ? "canary" : ""));
    CHECK(log[before + 1].headers.count("authorization") == (kept ? 1 : 0));
    CHECK(log[before + 1].headers.count("cookie") == 0);
  }
}

TEST_CASE("a redirect from a public address does not lead to a local one") {
  for (const std::string target :
       {"127.0.0.1", "localhost", "[::1]", "169.254.169.254", "0.0.0.0"}) {
    INFO(target);
    HttpIoSeams seams;
    seams.peers_are_public = true;
    HttpSimulation web({}, seams);
    web.origin.put("/real", pattern(1000));
    web.origin.script(leads(
        {{"/object", "http://" + target + ":" + std::to_string(web.origin.port()) + "/real"}}));
    Bytes out(100);
    auto refused = read(web, "object", out);
    REQUIRE(!refused);
    CHECK(refused.error().code() == ErrorCode::access_denied);
    CHECK_THAT(refused.error().message(), ContainsSubstring("local address"));
    CHECK(web.origin.requests() == 1);
  }
}
