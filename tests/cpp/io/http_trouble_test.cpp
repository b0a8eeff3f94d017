#include <netinet/in.h>
#include <sys/socket.h>

#include "support/catch.h"
#include "support/http_simulation.h"

using namespace headpond;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

OriginAnswer with(std::vector<std::string> headers) {
  OriginAnswer answer;
  answer.headers = std::move(headers);
  return answer;
}

OriginAnswer raw(std::string text) {
  OriginAnswer answer;
  answer.raw = std::move(text);
  return answer;
}

ScriptedOrigin::Script always(OriginAnswer answer) {
  return [answer = std::move(answer)](const OriginRequest&) { return answer; };
}

ScriptedOrigin::Script first(std::size_t times, OriginAnswer answer) {
  return [times, answer = std::move(answer)](const OriginRequest& request) {
    return request.number <= times ? answer : OriginAnswer();
  };
}

ObjectVersion of_size(std::uint64_t size) {
  ObjectVersion version;
  version.size = size;
  return version;
}

struct Read {
  Bytes bytes;
  Result<ReadOutcome> outcome;
};

Read read(Store& store, const std::string& object, std::uint64_t offset, std::size_t size,
          const ObjectVersion& expected = {}) {
  Read read{Bytes(size), ReadOutcome()};
  read.outcome = read_blocking(store, object, offset, read.bytes, expected);
  if (read.outcome) read.bytes.resize(read.outcome->bytes);
  return read;
}

void check_code(const Read& read, ErrorCode code) {
  REQUIRE(!read.outcome);
  INFO(read.outcome.error().to_string());
  CHECK(read.outcome.error().code() == code);
}

const Bytes kBytes = pattern(5000);

}  // namespace

TEST_CASE("a name that does not exist fails at once, one that cannot be looked up is tried again") {
  for (const bool exists : {false, true}) {
    std::size_t asked = 0;
    HttpIoSeams seams;
    seams.name_check = [&](const std::string& host, std::function<void(NameState)> then) {
      CHECK(host == "nowhere.invalid");
      ++asked;
      then(exists ? NameState::unknown_for_now : NameState::does_not_exist);
    };
    HttpOptions options;
    options.outage_s = 0;
    // libcurl looks names up on a thread of its own, in real time.
    auto io = make_http_io(options, std::make_shared<SystemClock>(), nullptr, seams);
    auto store = *io->open(*Uri::parse("http://nowhere.invalid:81/"));
    const Read one = read(*store, "x", 0, 10);
    check_code(one, ErrorCode::unavailable);
    CHECK((asked > 1) == exists);
    CHECK((io->counters().requests > 1) == exists);
    io->close();
  }
}

TEST_CASE("a closed port is a host that is down") {
  HttpOptions options;
  options.outage_s = 0;
  HttpSimulation web(options);
  web.origin.down();
  check_code(read(*web.store, "object", 0, 10), ErrorCode::unavailable);
  CHECK(web.io->counters().requests == 3);
}

TEST_CASE("connections that are not made within 3 s are given up") {
  // A backlog that is full: further attempts to connect get no answer.
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(listen(listener.get(), 0) == 0);
  REQUIRE(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  std::vector<UniqueFd> fillers;
  for (int i = 0; i < 4; ++i) {
    fillers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    static_cast<void>(connect(fillers.back().get(), reinterpret_cast<sockaddr*>(&address), size));
  }
  HttpOptions options;
  options.outage_s = 0;
  HttpSimulation web(options);
  auto store = web.open("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/");
  const Read one = read(*store, "x", 0, 10);
  check_code(one, ErrorCode::unavailable);
  CHECK_THAT(one.outcome.error().message(), ContainsSubstring("no connection within 3 s"));
  CHECK(web.now_s() >= 9);
  CHECK(web.now_s() <= 10);
}

TEST_CASE("of several addresses the next one is taken when one is dead") {
  HttpIoSeams seams;
  HttpSimulation other;
  seams.addresses = {"many:" + std::to_string(other.origin.port()) + ":[::1],127.0.0.2,127.0.0.1"};
  HttpOptions options;
  options.retries = 0;
  HttpSimulation web(options, seams);
  other.origin.put("/object", kBytes);
  // Its origin answers; its thread runs once its own store was read.
  REQUIRE(read(*other.store, "object", 0, 5000).outcome);
  auto store = web.open("http://many:" + std::to_string(other.origin.port()) + "/");
  const Read one = read(*store, "object", 0, 5000);
  INFO((one.outcome ? std::string() : one.outcome.error().to_string()));
  REQUIRE(one.outcome);
  CHECK((one.bytes == kBytes));
}

TEST_CASE("answers in pieces of one byte are read, heads too") {
  HttpSimulation web;
  web.origin.put("/object", kBytes);
  OriginAnswer slow;
  slow.segment = 1;
  slow.segment_head = true;
  web.origin.script(always(slow));
  CHECK((read(*web.store, "object", 100, 300).bytes == part(kBytes, 100, 300)));
  slow.chunked = true;
  web.origin.script(always(slow));
  CHECK((read(*web.store, "object", 100, 300).bytes == part(kBytes, 100, 300)));
}

TEST_CASE("an error page in place of the object is not taken for it") {
  HttpSimulation web;
  web.origin.put("/object", kBytes);
  OriginAnswer page;
  page.status = 200;
  page.body = "<html>we are sorry</html>";
  web.origin.script(always(page));
  check_code(read(*web.store, "object", 0, 5000, of_size(5000)), ErrorCode::object_changed);
  check_code(read(*web.store, "object", 0, 100, of_size(5000)), ErrorCode::object_changed);
}

TEST_CASE("a large object in place of a range is not read") {
  for (const bool with_length : {true, false}) {
    HttpSimulation web;
    web.origin.put("/object", pattern(64 << 20));
    OriginAnswer whole;
    whole.ignore_range = true;
    whole.until_close = !with_length;
    web.origin.script(always(whole));
    const Read one = read(*web.store, "object", 60 << 20, 100);
    check_code(one, ErrorCode::unsupported);
    CHECK_THAT(one.outcome.error().message(), ContainsSubstring("no ranges"));
    CHECK(web.io->counters().bytes <= (with_length ? 1u << 20 : 9u << 20));
    CHECK(web.origin.requests() == 1);
  }
}

TEST_CASE("a wrong range is never data: one more attempt, then an error") {
  struct Row {
    const char* name;
    OriginAnswer answer;
  };
  std::vector<Row> rows;
  for (const char* range :
       {"Content-Range: bytes 0-99/5000", "Content-Range: bytes 101-200/5000",
        "Content-Range: bytes 100-198/5000", "Content-Range: bytes 100-4999/5000",
        "Content-Range: bytes 7-8/9", "Content-Range: bytes */5000", "Content-Range: nonsense"})
    rows.push_back({range, with({"-Content-Range", range})});
  rows.push_back({"none", with({"-Content-Range"})});
  rows.push_back({"parts", with({"Content-Type: multipart/byteranges; boundary=x"})});
  OriginAnswer longer;
  longer.until_close = true;
  longer.extra = std::string(1000, 'x');
  rows.push_back({"a longer body", longer});
  OriginAnswer lengths = with({"Content-Length: 99"});
  rows.push_back({"two lengths", lengths});
  for (const Row& row : rows) {
    INFO(row.name);
    HttpSimulation web;
    web.origin.put("/object", kBytes);
    web.origin.script(first(1, row.answer));
    CHECK((read(*web.store, "object", 100, 100).bytes == part(kBytes, 100, 100)));
    CHECK(web.origin.requests() == 2);
    web.origin.script(always(row.answer));
    const Read one = read(*web.store, "object", 100, 100);
    check_code(one, ErrorCode::corrupt_data);
    CHECK(web.origin.requests() == 4);
  }
}

TEST_CASE("objects that shrank or vanished are told apart from the end of the object") {
  HttpSimulation web;
  web.origin.put("/object", kBytes);
  auto info = stat_blocking(*web.store, "object");
  REQUIRE(info);
  CHECK(read(*web.store, "object", 5000, 10, info->version).bytes.empty());
  web.origin.put("/object", pattern(100));
  check_code(read(*web.store, "object", 4000, 10, info->version), ErrorCode::object_changed);
  check_code(read(*web.store, "object", 4000, 10, of_size(5000)), ErrorCode::object_changed);
  CHECK(read(*web.store, "object", 4000, 10).bytes.empty());
  web.origin.put("/object", {});
  CHECK(read(*web.store, "object", 0, 10).bytes.empty());
  check_code(read(*web.store, "object", 0, 10, info->version), ErrorCode::object_changed);
}

TEST_CASE("an object that changes is noticed by whatever the server gives") {
  for (const auto& hidden :
       {std::vector<std::string>{}, {"-ETag"}, {"-Last-Modified"}, {"-ETag", "-Last-Modified"}}) {
    INFO("without " << hidden.size());
    HttpSimulation web;
    web.origin.script(always(with(hidden)));
    web.origin.put("/object", kBytes);
    auto info = stat_blocking(*web.store, "object");
    REQUIRE(info);
    const bool strong = hidden.empty() || hidden[0] != "-ETag";
    CHECK(info->version.weak == !strong);
    const bool seen = hidden.size() < 2;
    web.origin.put("/object", pattern(5000, 2));
    for (const std::size_t size : {100u, 5000u}) {
      const Read same_size = read(*web.store, "object", 0, size, info->version);
      CHECK(same_size.outcome.has_value() == !seen);
      if (seen) check_code(same_size, ErrorCode::object_changed);
    }
    web.origin.put("/object", pattern(6000, 2));
    check_code(read(*web.store, "object", 0, 100, info->version), ErrorCode::object_changed);
    if (strong) CHECK(web.origin.log().back().header("if-match").empty());  // what it changed to
  }
}

TEST_CASE("weak entity tags are compared, and no condition is made of them") {
  HttpSimulation web;
  web.origin.put("/object", kBytes);
  web.origin.script(always(with({"-ETag", "ETag: W/\"1\""})));
  auto info = stat_blocking(*web.store, "object");
  REQUIRE(info);
  CHECK(info->version.weak);
  CHECK(read(*web.store, "object", 0, 100, info->version).outcome);
  CHECK(web.origin.log().back().header("if-match").empty());
  web.origin.script(always(with({"-ETag", "ETag: W/\"2\""})));
  check_code(read(*web.store, "object", 0, 100, info->version), ErrorCode::object_changed);
}

TEST_CASE("a version that switches in the middle of a body is not mixed") {
  for (const bool tagged : {true, false}) {
    HttpSimulation web;
    web.origin.put("/object", kBytes);
    web.origin.script([&](const OriginRequest& request) {
      OriginAnswer answer = tagged ? OriginAnswer() : with({"-ETag"});
      if (request.number == 1) {
        answer.cut_at = 2000;
      } else if (request.number == 2) {
        web.origin.put("/object", pattern(5000, 2));
      }
      return answer;
    });
    const Read one = read(*web.store, "object", 0, 5000);
    check_code(one, ErrorCode::object_changed);
  }
}

TEST_CASE("totals that differ between two ranges are noticed without validators") {
  HttpSimulation web;
  web.origin.put("/object", kBytes);
  web.origin.script([&](const OriginRequest& request) {
    OriginAnswer answer = with({"-ETag", "-Last-Modified"});
    if (request.number == 1) answer.cut_at = 100;
    if (request.number == 2) {
      answer.headers.push_back("-Content-Range");
      answer.headers.push_back("Content-Range: bytes 200-4999/6000");
    }
    return answer;
  });
  check_code(read(*web.store, "object", 100, 4900), ErrorCode::object_changed);
}

TEST_CASE("compressed answers are refused") {
  HttpSimulation web;
  web.origin.put("/object", kBytes);
  OriginAnswer zipped = with({"Content-Encoding: gzip"});
  zipped.body = std::string(298, 'z');
  web.origin.script(always(zipped));
  check_code(read(*web.store, "object", 0, 100), ErrorCode::unsupported);
  check_code(read(*web.store, "object", 0, 298, of_size(298)), ErrorCode::unsupported);
  auto info = stat_blocking(*web.store, "object");
  REQUIRE(!info);
  CHECK(info.error().code() == ErrorCode::unsupported);
  for (const auto& request : web.origin.log())
    CHECK(request.header("accept-encoding") == "identity");
}

TEST_CASE("endless heads end at 64 KiB, endless bodies where they should") {
  for (const bool one_line : {true, false}) {
    std::string head = "HTTP/1.1 206 OK\r\n";
    if (one_line) {
      head += "X-Long: " + std::string(1 << 20, 'x');
    } else {
      for (int i = 0; i < 50'000; ++i) head += "X-Header-" + std::to_string(i) + ": y\r\n";
    }
    HttpSimulation web;
    web.origin.put("/object", kBytes);
    web.origin.script(first(1, raw(head)));
    CHECK((read(*web.store, "object", 0, 100).bytes == part(kBytes, 0, 100)));
    web.origin.script(always(raw(head)));
    check_code(read(*web.store, "object", 0, 100), ErrorCode::corrupt_data);
  }
  HttpSimulation web;
  web.origin.put("/object", kBytes);
  OriginAnswer endless;
  endless.until_close = true;
  endless.extra = std::string(64 << 20, 'x');
  web.origin.script(always(endless));
  check_code(read(*web.store, "object", 0, 100), ErrorCode::corrupt_data);
  check_code(read(*web.store, "object", 0, 5000, of_size(5000)), ErrorCode::object_changed);
  CHECK(web.io->counters().bytes < (4u << 20));
}

TEST_CASE("what is no HTTP is an error") {
  for (const char* text :
       {"hello\r\n\r\n", "SSH-2.0-OpenSSH\r\n", "\0\0\0\0", "HTTP/9.9 200 OK\r\n\r\n",
        "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 200\r\nContent-Length: -1\r\n\r\nx"}) {
    INFO(text);
    HttpOptions options;
    options.outage_s = 5;
    HttpSimulation web(options);
    web.origin.put("/object", kBytes);
    web.origin.script(always(raw(text)));
    CHECK_FALSE(read(*web.store, "object", 0, 100).outcome);
    web.origin.script(first(web.origin.requests() + 1, raw(text)));
  }
}

TEST_CASE("interim answers are skipped") {
  HttpSimulation web;
  web.origin.script(
      always(raw("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
                 "HTTP/1.1 206 OK\r\nContent-Range: bytes 0-4/5\r\n"
                 "Content-Length: 5\r\n\r\nhello")));
  CHECK((read(*web.store, "object", 0, 100).bytes == bytes_of("hello")));
}

TEST_CASE("a size is learned where HEAD is refused or left without an answer") {
  for (const int status : {403, 404, 405, 501, 0}) {
    INFO(status);
    HttpSimulation web;
    web.origin.put("/object", kBytes);
    web.origin.script([&](const OriginRequest& request) {
      OriginAnswer answer;
      if (request.method != "HEAD") return answer;
      answer.status = status;
      answer.silent = status == 0;
      return answer;
    });
    auto info = stat_blocking(*web.store, "object");
    REQUIRE(info);
    CHECK(info->version.size == 5000);
    CHECK(web.origin.requests() == 2);
    CHECK(web.origin.log()[1].header("range") == "bytes=0-0");
  }
}

TEST_CASE("a missing object that appears is found") {
  HttpSimulation web;
  check_code(read(*web.store, "object", 0, 10), ErrorCode::not_found);
  CHECK(!stat_blocking(*web.store, "object"));
  web.origin.put("/object", kBytes);
  CHECK((read(*web.store, "object", 0, 10).bytes == part(kBytes, 0, 10)));
}

TEST_CASE("names go to the server as they were written") {
  HttpSimulation web;
  for (const auto& [name, target] : std::initializer_list<std::pair<std::string, std::string>>{
           {"a b", "/a%20b"},
           {"caf\xC3\xA9", "/caf%C3%A9"},
           {"caf\xE9", "/caf%E9"},
           {"100%", "/100%25"},
           {"a%2Fb", "/a%2Fb"},
           {"x/../y", "/x/../y"},
           {"./x", "/./x"},
           {"x//y", "/x//y"},
           {"o?versionId=1&sig=a%2Bb", "/o?versionId=1&sig=a%2Bb"},
           {"a+b=c&d", "/a+b=c&d"},
           {"a#b", "/a%23b"},
           {"a\nb", "/a%0Ab"}}) {
    INFO(name);
    web.origin.put(target, kBytes);
    CHECK((read(*web.store, name, 1, 10).bytes == part(kBytes, 1, 10)));
    CHECK(web.origin.log().back().target == target);
  }
}

TEST_CASE("errors hide what is secret and name everything else") {
  HttpSimulation web;
  auto store = web.open("http://user:canary@127.0.0.1:" + std::to_string(web.origin.port()) + "/d");
  const Read one = read(*store, "o.tar?X-Amz-Signature=canary&part=3", 7, 10);
  REQUIRE(!one.outcome);
  const std::string text = one.outcome.error().to_string();
  CHECK_THAT(text, ContainsSubstring("/d/o.tar?X-Amz-Signature=...&part=3[7, 17)") &&
                       !ContainsSubstring("canary"));
  CHECK(store->describe().find("canary") == std::string::npos);
}
