// What a host is charged with: storms of failures, silence, and what is missing here.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "support/awaited_reads.h"
#include "support/catch.h"
#include "support/http_simulation.h"

using namespace headpond;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Many {
  std::vector<Bytes> out;
  std::vector<ReadRequest> requests;
  AwaitedReads reads;

  Many(std::size_t count, std::size_t bytes) : out(count, Bytes(bytes)), requests(count) {
    for (std::size_t i = 0; i < count; ++i) {
      requests[i].object = std::to_string(i);
      requests[i].out = out[i];
      reads.add(requests[i]);
    }
  }
};

// The undefined-behaviour sanitizer looks at the first object of each type through a pipe, which it
// would not get later.
void meet_types(const std::string& host) {
  HttpSimulation web;
  web.origin.put("/0", pattern(10));
  auto store = web.open("http://" + host + ":" + std::to_string(web.origin.port()) + "/");
  for (const char* object : {"0", "none"}) {
    Bytes out(10);
    AwaitedReads reads;
    ReadRequest request;
    request.object = object;
    request.out = out;
    reads.add(request);
    store->read({&request, 1});
    static_cast<void>(reads.wait());
  }
}

// No further file handle, until it ends.
class NoHandles {
 public:
  explicit NoHandles(const std::string& host = "127.0.0.1") {
    meet_types(host);
    getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest = dup(0);
    close(lowest);
    rlimit now = before_;
    now.rlim_cur = static_cast<rlim_t>(lowest);
    setrlimit(RLIMIT_NOFILE, &now);
  }
  ~NoHandles() { end(); }
  void end() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("a storm of failures gets no more retries than the host's budget, second by second") {
  OriginAnswer cut;
  cut.cut_at = 10;
  OriginAnswer busy;
  busy.status = 503;
  // A host that refuses is asked less at a time, too.
  for (const auto& [answer, count] :
       {std::pair(cut, std::size_t{1000}), std::pair(busy, std::size_t{60})}) {
    HttpOptions options;
    options.outage_s = 60;
    HttpSimulation web(options);
    for (std::size_t i = 0; i < count; ++i) web.origin.put("/" + std::to_string(i), pattern(100));
    web.origin.script([made = answer](const OriginRequest&) { return made; });
    Many many(count, 100);
    web.store->read(many.requests);
    for (const auto& outcome : many.reads.wait()) CHECK(!outcome);
    std::vector<double> retries;
    for (const auto& request : web.origin.log()) {
      if (request.number > 1)
        retries.push_back(std::chrono::duration<double>(request.at.time_since_epoch()).count());
    }
    std::sort(retries.begin(), retries.end());
    // 500 tokens buy 100; from then on one goes each second.
    REQUIRE(retries.size() > 100);
    for (std::size_t i = 100; i < retries.size(); ++i)
      REQUIRE(static_cast<double>(i) <= 100 + (retries[i] - retries[0]) + 1);
    // And nobody waits for ever: no retry waits longer than an outage is waited for.
    if (count == 1000) CHECK(web.now_s() < 6 * 60);
  }
}

TEST_CASE("retries that wait for the budget go in the order of their failures") {
  HttpIoSeams seams;
  seams.retry.tokens = 0;
  HttpSimulation web({}, seams);
  constexpr std::size_t kReads = 30;
  for (std::size_t i = 0; i < kReads; ++i) web.origin.put("/" + std::to_string(i), pattern(100));
  web.origin.script([&](const OriginRequest& request) {
    OriginAnswer answer;
    if (request.number == 1) answer.cut_at = 10;
    return answer;
  });
  Many many(kReads, 100);
  web.store->read(many.requests);
  for (const auto& outcome : many.reads.wait()) CHECK(outcome.has_value());
  std::vector<std::string> failed;
  std::vector<std::string> retried;
  for (const auto& request : web.origin.log())
    (request.number == 1 ? failed : retried).push_back(request.target);
  CHECK(failed == retried);
  for (const auto& bytes : many.out) CHECK((bytes == pattern(100)));
}

TEST_CASE("a host that sends heads and no bodies is down, and waited for") {
  HttpSimulation web;
  web.origin.put("/0", pattern(5000));
  web.origin.script([&](const OriginRequest&) {
    OriginAnswer answer;
    if (web.now_s() < 120) answer.stall_at = 0;
    return answer;
  });
  Many many(1, 5000);
  web.store->read(many.requests);
  const auto outcome = std::move(many.reads.wait()[0]);
  INFO((outcome ? std::string() : outcome.error().to_string()));
  REQUIRE(outcome);
  CHECK(web.io->counters().outages == 1);
  CHECK(web.io->counters().failures == 0);
}

TEST_CASE("a line that breaks in the middle of bodies costs their reads next to nothing") {
  HttpOptions options;
  options.retries = 2;
  HttpSimulation web(options);
  constexpr std::size_t kReads = 40;
  for (std::size_t i = 0; i < kReads; ++i) web.origin.put("/" + std::to_string(i), pattern(5000));
  web.origin.script([&](const OriginRequest&) {
    OriginAnswer answer;
    if (web.now_s() < 1) {
      answer.stall_at = 2000;
    } else if (web.now_s() < 150) {
      answer.silent = true;
    }
    return answer;
  });
  Many many(kReads, 5000);
  web.store->read(many.requests);
  for (const auto& outcome : many.reads.wait()) {
    INFO((outcome ? std::string() : outcome.error().to_string()));
    CHECK(outcome.has_value());
  }
  for (const auto& bytes : many.out) CHECK((bytes == pattern(5000)));
  CHECK(web.io->counters().outages == 1);
}

TEST_CASE("an object that always stalls after some bytes ends with an error, its host stays up") {
  HttpSimulation web;
  web.origin.put("/0", pattern(5000));
  web.origin.script([&](const OriginRequest&) {
    OriginAnswer answer;
    answer.stall_at = 100;
    return answer;
  });
  Many many(1, 5000);
  web.store->read(many.requests);
  const auto outcome = std::move(many.reads.wait()[0]);
  REQUIRE(!outcome);
  CHECK(outcome.error().code() == ErrorCode::timed_out);
  CHECK(web.origin.requests() == 6);
  CHECK(web.io->counters().outages == 0);
}

TEST_CASE("file handles that are missing here are nothing that a host did") {
  HttpSimulation web;
  web.origin.put("/0", pattern(100));
  {
    NoHandles none;
    web.at(1, [&] { none.end(); });
    Many many(1, 100);
    web.store->read(many.requests);
    const auto outcome = std::move(many.reads.wait()[0]);
    INFO((outcome ? std::string() : outcome.error().to_string()));
    REQUIRE(outcome);
    CHECK((many.out[0] == pattern(100)));
  }
  CHECK(web.now_s() >= 1);
  CHECK(web.now_s() < 3);
  CHECK(web.io->counters().no_answers == 0);
  CHECK(web.io->counters().refusals == 0);
}

TEST_CASE("file handles that stay missing end reads with that, and then the host is up") {
  HttpSimulation web;
  web.origin.put("/0", pattern(100));
  {
    NoHandles none;
    Many many(200, 100);
    web.store->read(many.requests);
    const auto outcomes = many.reads.wait();
    none.end();
    for (const auto& outcome : outcomes) {
      REQUIRE(!outcome);
      CHECK(outcome.error().code() == ErrorCode::resource_limit);
      CHECK_THAT(outcome.error().message(),
                 ContainsSubstring("open files") && ContainsSubstring("ulimit"));
    }
  }
  CHECK(web.now_s() < 20);
  CHECK(web.io->counters().requests < 100);
  const double began = web.now_s();
  Many again(1, 100);
  web.store->read(again.requests);
  CHECK(again.reads.wait()[0].has_value());
  CHECK(web.now_s() - began < 6);
  CHECK(web.io->counters().no_answers == 0);
  CHECK(web.io->counters().outages == 0);
}

TEST_CASE("a shortage of memory or handles within a look-up is seen as one") {
  HttpSimulation web;
  auto store = web.open("http://host.test:" + std::to_string(web.origin.port()) + "/");
  NoHandles none("localhost");
  Bytes out(10);
  AwaitedReads reads;
  ReadRequest request;
  request.object = "0";
  request.out = out;
  reads.add(request);
  store->read({&request, 1});
  const auto outcome = std::move(reads.wait()[0]);
  none.end();
  REQUIRE(!outcome);
  INFO(outcome.error().to_string());
  CHECK(outcome.error().code() == ErrorCode::resource_limit);
  CHECK(web.io->counters().outages == 0);
}
