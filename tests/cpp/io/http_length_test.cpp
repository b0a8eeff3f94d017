// What servers say of lengths, in every wrong way: the right bytes, or the right error.

#include <optional>

#include "io/unsized_body.h"
#include "support/awaited_reads.h"
#include "support/catch.h"
#include "support/http_simulation.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

const Bytes kBytes = pattern(100);

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

OriginAnswer raw(const std::string& status, const std::string& headers, const std::string& body) {
  OriginAnswer answer;
  answer.raw = "HTTP/1.1 " + status + "\r\n" + headers + "\r\n" + body;
  return answer;
}

std::string chunked(const std::string& body) { return "64\r\n" + body + "\r\n0\r\n\r\n"; }

// A read of an object wanted whole, of unknown size.
struct Whole {
  Bytes bytes;
  Result<ReadOutcome> outcome;
};

Whole read_whole(Store& store, const std::string& object) {
  Whole whole{{}, ReadOutcome()};
  AwaitedReads reads;
  ReadRequest request;
  request.object = object;
  request.allocate = [&](std::uint64_t size) {
    if (size > (1u << 30)) return std::span<std::byte>();
    whole.bytes.resize(size);
    return std::span(whole.bytes);
  };
  reads.add(request);
  store.read({&request, 1});
  whole.outcome = std::move(reads.wait()[0]);
  return whole;
}

}  // namespace

TEST_CASE("wrong lengths of a whole object give the right bytes or the right error") {
  const std::string body = text_of(kBytes);
  struct Row {
    const char* headers;
    std::string body;
    std::optional<ErrorCode> error;
  };
  const std::vector<Row> rows = {
      {"Content-Length: 100\r\n", body, {}},
      {"", body, {}},  // until the connection ends
      {"Content-Length: 100\r\nContent-Length: 100\r\n", body, {}},
      {"Content-Length: 100, 100\r\n", body, {}},
      {"Content-Length: 0100\r\n", body, {}},
      {"Content-Length: 100\r\nContent-Length: 99\r\n", body, ErrorCode::corrupt_data},
      {"Content-Length: 99\r\nContent-Length: 100\r\n", body, ErrorCode::corrupt_data},
      {"Content-Length: 100, 99\r\n", body, ErrorCode::corrupt_data},
      {"Content-Length: -1\r\n", body, ErrorCode::corrupt_data},
      {"Content-Length: +100\r\n", body, ErrorCode::corrupt_data},
      {"Content-Length: 1e2\r\n", body, ErrorCode::corrupt_data},
      {"Content-Length: 0x64\r\n", body, ErrorCode::corrupt_data},
      {"Content-Length: 100 bytes\r\n", body, ErrorCode::corrupt_data},
      {"Content-Length: hundred\r\n", body, ErrorCode::corrupt_data},
      {"Content-Length:\r\n", body, ErrorCode::corrupt_data},
      {"Content-Length: 18446744073709551616\r\n", body, ErrorCode::corrupt_data},
      {"Content-Length: 99999999999999999999999\r\n", body, ErrorCode::corrupt_data},
      // Such memory is refused before a byte comes.
      {"Content-Length: 18446744073709551615\r\n", body, ErrorCode::resource_limit},
      {"Content-Length: 9223372036854775808\r\n", body, ErrorCode::resource_limit},
      {"Content-Length: 101\r\n", body, ErrorCode::unavailable},  // cut, as far as one can tell
      // Chunks say the length themselves.
      {"Transfer-Encoding: chunked\r\n", chunked(body), {}},
      {"Transfer-Encoding: chunked\r\nContent-Length: 100\r\n", chunked(body), {}},
      {"Transfer-Encoding: chunked\r\nContent-Length: 7\r\n", chunked(body), {}},
      {"Content-Length: 700\r\nTransfer-Encoding: chunked\r\n", chunked(body), {}},
      {"Transfer-Encoding: chunked\r\nContent-Length: x\r\n", chunked(body),
       ErrorCode::corrupt_data},
  };
  for (const Row& row : rows) {
    INFO(row.headers);
    HttpSimulation web;
    web.origin.script([&](const OriginRequest&) { return raw("200 OK", row.headers, row.body); });
    const Whole whole = read_whole(*web.store, "object");
    if (!row.error) {
      INFO((whole.outcome ? std::string() : whole.outcome.error().to_string()));
      REQUIRE(whole.outcome);
      CHECK(whole.outcome->bytes == 100);
      CHECK(whole.outcome->version.size == 100);
      CHECK((whole.bytes == kBytes));
    } else {
      REQUIRE(!whole.outcome);
      INFO(whole.outcome.error().to_string());
      CHECK(whole.outcome.error().code() == *row.error);
    }
    CHECK(web.io->counters().outages == 0);
  }
}

TEST_CASE("bytes behind the announced length are not data") {
  HttpSimulation web;
  web.origin.script([&](const OriginRequest&) {
    return raw("200 OK", "Content-Length: 100\r\n", text_of(kBytes) + "HTTP/1.1 200 OK\r\n\r\n");
  });
  const Whole whole = read_whole(*web.store, "object");
  REQUIRE(whole.outcome);
  CHECK((whole.bytes == kBytes));
}

TEST_CASE("wrong lengths of a range give the right bytes or the right error") {
  const std::string body = text_of(part(kBytes, 10, 20));
  struct Row {
    const char* headers;
    std::string body;
    std::optional<ErrorCode> error;
  };
  const std::vector<Row> rows = {
      {"Content-Length: 20\r\n", body, {}},
      {"", body, {}},
      {"Transfer-Encoding: chunked\r\n", "14\r\n" + body + "\r\n0\r\n\r\n", {}},
      {"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
       "14\r\n" + body + "\r\n0\r\n\r\n",
       {}},
      {"Content-Length: 20\r\n", body + "more", {}},
      {"Content-Length: 19\r\n", body, ErrorCode::corrupt_data},
      {"Content-Length: 21\r\n", body + "x", ErrorCode::corrupt_data},
      {"Content-Length: 100\r\n", text_of(kBytes), ErrorCode::corrupt_data},
      {"Content-Length: 0\r\n", "", ErrorCode::corrupt_data},
      {"Content-Length: -20\r\n", body, ErrorCode::corrupt_data},
      {"Content-Length: 20\r\nContent-Length: 21\r\n", body, ErrorCode::corrupt_data},
      {"", body + "more", ErrorCode::corrupt_data},
      {"Transfer-Encoding: chunked\r\n", "18\r\n" + body + "more\r\n0\r\n\r\n",
       ErrorCode::corrupt_data},
      // Cut: the rest is asked for.
      {"Transfer-Encoding: chunked\r\n", "13\r\n" + body.substr(0, 19) + "\r\n0\r\n\r\n", {}},
      {"", body.substr(0, 19), {}},
  };
  for (const Row& row : rows) {
    INFO(row.headers << " and " << row.body.size());
    HttpSimulation web;
    web.origin.put("/object", kBytes);
    web.origin.script([&](const OriginRequest& request) {
      if (request.header("range") != "bytes=10-29") return OriginAnswer();
      return raw("206 Partial Content",
                 "Content-Range: bytes 10-29/100\r\n" + std::string(row.headers), row.body);
    });
    Bytes out(20);
    auto outcome = read_blocking(*web.store, "object", 10, out);
    if (!row.error) {
      INFO((outcome ? std::string() : outcome.error().to_string()));
      REQUIRE(outcome);
      CHECK(outcome->bytes == 20);
      CHECK((out == part(kBytes, 10, 20)));
    } else {
      REQUIRE(!outcome);
      INFO(outcome.error().to_string());
      CHECK(outcome.error().code() == *row.error);
    }
  }
}

TEST_CASE("where HEAD and GET contradict each other, no bytes are taken for others") {
  struct Row {
    const char* head;    // what HEAD says of the length
    std::uint64_t size;  // that is found
    bool readable;       // with that version
  };
  for (const Row& row : std::initializer_list<Row>{{"Content-Length: 100", 100, true},
                                                   {"Content-Length: 0", 100, true},
                                                   {"X-No: length", 100, true},
                                                   {"Transfer-Encoding: chunked", 100, true},
                                                   {"Content-Length: 7", 7, false},
                                                   {"Content-Length: 101", 101, false}}) {
    INFO(row.head);
    HttpSimulation web;
    web.origin.put("/object", kBytes);
    web.origin.script([&](const OriginRequest& request) {
      OriginAnswer answer;
      if (request.method == "HEAD") answer.headers = {"-Content-Length", row.head};
      return answer;
    });
    auto info = stat_blocking(*web.store, "object");
    REQUIRE(info);
    CHECK(info->version.size == row.size);
    Bytes out(row.size);
    auto outcome = read_blocking(*web.store, "object", 0, out, info->version);
    CHECK(outcome.has_value() == row.readable);
    if (outcome) CHECK((out == kBytes));
    if (!outcome) CHECK(outcome.error().code() == ErrorCode::object_changed);
  }
}

TEST_CASE("contradictory lengths in a HEAD are an error") {
  for (const char* header : {"Content-Length: 99", "Content-Length: -1", "Content-Length: x"}) {
    INFO(header);
    HttpSimulation web;
    web.origin.put("/object", kBytes);
    web.origin.script([&](const OriginRequest&) {
      OriginAnswer answer;
      answer.headers = {header};
      return answer;
    });
    auto info = stat_blocking(*web.store, "object");
    REQUIRE(!info);
    CHECK(info.error().code() == ErrorCode::corrupt_data);
  }
}

TEST_CASE("an empty object is empty, whatever its server makes of a range of it") {
  for (const char* total : {"Content-Range: bytes */0", "X-No: range"}) {
    INFO(total);
    HttpSimulation web;
    web.origin.put("/object", {});
    web.origin.script([&](const OriginRequest&) {
      OriginAnswer answer;
      answer.headers = {"-Content-Range", total};
      return answer;
    });
    auto info = stat_blocking(*web.store, "object");
    REQUIRE(info);
    CHECK(info->version.size == 0);
  }
}

TEST_CASE("an object without a length is read up to 32 MiB") {
  OriginAnswer answer;
  answer.until_close = true;
  for (const std::size_t size : {std::size_t{kUnsizedMax}, std::size_t{kUnsizedMax} + 1}) {
    HttpSimulation web;
    web.origin.put("/object", pattern(size));
    web.origin.script([&](const OriginRequest&) { return answer; });
    const Whole whole = read_whole(*web.store, "object");
    CHECK(whole.outcome.has_value() == (size == kUnsizedMax));
    if (whole.outcome) {
      CHECK((whole.bytes == pattern(size)));
    } else {
      CHECK(whole.outcome.error().code() == ErrorCode::unsupported);
      CHECK_THAT(whole.outcome.error().message(), ContainsSubstring("above 32 MiB"));
      CHECK(web.origin.requests() == 1);
    }
  }
}

TEST_CASE("objects without lengths that have no room together are read one after another") {
  constexpr std::size_t kObjects = 6;
  HttpSimulation web;
  const Bytes bytes = pattern(12 << 20);
  OriginAnswer answer;
  answer.until_close = true;
  for (std::size_t i = 0; i < kObjects; ++i) web.origin.put("/" + std::to_string(i), bytes);
  web.origin.script([&](const OriginRequest&) { return answer; });
  AwaitedReads reads;
  std::vector<Bytes> out(kObjects);
  std::vector<ReadRequest> requests(kObjects);
  for (std::size_t i = 0; i < kObjects; ++i) {
    requests[i].object = std::to_string(i);
    requests[i].allocate = [&, i](std::uint64_t size) {
      out[i].resize(size);
      return std::span(out[i]);
    };
    reads.add(requests[i]);
  }
  web.store->read(requests);
  for (const auto& outcome : reads.wait()) {
    INFO((outcome ? std::string() : outcome.error().to_string()));
    CHECK(outcome.has_value());
  }
  for (const auto& read : out) CHECK((read == bytes));
  CHECK(web.io->counters().outages == 0);
}

TEST_CASE("UnsizedBody: what several hold together is bounded, and comes back") {
  UnsizedTotal total;
  const Bytes piece = pattern(1 << 20);
  {
    UnsizedBody one(total);
    UnsizedBody two(total);
    for (int i = 0; i < 16; ++i) {
      REQUIRE(one.append(piece));
      REQUIRE(two.append(piece));
    }
    CHECK(total.bytes == kUnsizedMax);
    CHECK_FALSE(one.append(part(piece, 0, 1)));
    CHECK_FALSE(one.is_alone());
    two.clear();
    CHECK(one.is_alone());
    REQUIRE(one.append(part(piece, 0, 1)));
    REQUIRE(one.size() == (16u << 20) + 1);
    Bytes out(one.size());
    one.move_to(out);
    CHECK((part(out, 15 << 20, 1 << 20) == piece));
    CHECK(out.back() == piece.front());
    CHECK(one.size() == 0);
    REQUIRE(two.append(piece));
  }
  CHECK(total.bytes == 0);
}
