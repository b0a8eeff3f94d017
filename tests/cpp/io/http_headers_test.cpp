#include "io/http_headers.h"

#include "support/catch.h"

using namespace headpond;

namespace {

ResponseHead head_of(std::initializer_list<const char*> lines) {
  ResponseHead head;
  for (const char* line : lines) head.add_line(std::string(line) + "\r\n");
  return head;
}

}  // namespace

TEST_CASE("Content-Range is read as it must be written, and nothing else is") {
  const auto full = parse_content_range("bytes 0-99/1000");
  REQUIRE(full);
  CHECK(full->span == ContentRange::Span{0, 99});
  CHECK(full->total == 1000u);
  CHECK(parse_content_range("bytes 5-5/*")->total == std::nullopt);
  CHECK(parse_content_range("bytes */7")->span == std::nullopt);
  CHECK(parse_content_range("BYTES  0-0/1"));
  CHECK(parse_content_range("bytes 18446744073709551614-18446744073709551614/*")->span->first ==
        18446744073709551614u);
  for (const char* bad : {"",
                          "bytes",
                          "bytes ",
                          "bytes 0-99",
                          "bytes 0-99/",
                          "bytes -99/100",
                          "bytes 0-/100",
                          "bytes 9-1/100",
                          "bytes 0-100/100",
                          "bytes */*",
                          "bytes a-b/c",
                          "items 0-1/2",
                          "bytes 0-18446744073709551615/*",
                          "bytes 0-99999999999999999999/*",
                          "bytes 0--1/2",
                          "bytes 0-1/2/3",
                          "bytes +0-1/2",
                          "bytes0-1/2",
                          "bytes 0-1/ 2x",
                          "bytes 0x0-0x1/2"}) {
    INFO(bad);
    CHECK_FALSE(parse_content_range(bad));
  }
}

TEST_CASE("dates are read in the three forms") {
  constexpr std::int64_t kTime = 784111777;
  CHECK(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT") == kTime);
  CHECK(parse_http_date("Sunday, 06-Nov-94 08:49:37 GMT") == kTime);
  CHECK(parse_http_date("Sun Nov  6 08:49:37 1994") == kTime);
  CHECK(parse_http_date("Thu, 01 Jan 1970 00:00:00 GMT") == 0);
  CHECK(parse_http_date("Tue, 29 Feb 2000 23:59:60 GMT") == 951868800);
  for (const char* bad :
       {"", "now", "Sun, 06 Now 1994 08:49:37 GMT", "Sun, 99 Nov 1994 08:49:37", "Sun, 06 Nov 1994",
        "06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 25:00:00", "1700000000", "-1"}) {
    INFO(bad);
    CHECK_FALSE(parse_http_date(bad));
  }
}

TEST_CASE("the last of several heads counts") {
  const auto head = head_of({"HTTP/1.1 103 Early Hints", "ETag: \"early\"", "",
                             "HTTP/1.1 200 Fine thing", "Content-Length: 7"});
  CHECK(head.status() == 200);
  CHECK(head.reason() == "Fine thing");
  CHECK(head.etag().empty());
  CHECK(head.content_length() == 7u);
  CHECK(head_of({"HTTP/2 206 "}).status() == 206);
}

TEST_CASE("fields are found in any case, and what contradicts itself is malformed") {
  CHECK(head_of({"HTTP/1.1 200 OK", "content-length:5"}).content_length() == 5u);
  CHECK(head_of({"HTTP/1.1 200 OK", "Content-Length: 5, 5"}).malformed().empty());
  for (const char* bad : {"Content-Length: 6", "Content-Length: 5, 6", "Content-Length: -5",
                          "Content-Length: 99999999999999999999", "Content-Length: 0x5",
                          "Content-Range: bytes 1-2", "Content-Length:"}) {
    INFO(bad);
    CHECK_FALSE(head_of({"HTTP/1.1 200 OK", "Content-Length: 5", bad}).malformed().empty());
  }
  CHECK_FALSE(
      head_of({"HTTP/1.1 206 OK", "Content-Range: bytes 0-1/5", "Content-Range: bytes 2-3/5"})
          .malformed()
          .empty());
  CHECK(head_of({"HTTP/1.1 200 OK", "CONTENT-ENCODING: gzip"}).encoded());
  CHECK_FALSE(head_of({"HTTP/1.1 200 OK", "Content-Encoding: Identity"}).encoded());
  CHECK(head_of({"HTTP/1.1 206 OK", "Content-Type: multipart/byteranges; boundary=x"}).multipart());
}

TEST_CASE("an entity tag is taken only if it is one, and weak ones are told apart") {
  const auto version = [](const char* line) {
    return head_of({"HTTP/1.1 200 OK", line}).version(10);
  };
  CHECK(version("ETag: \"abc\"").etag == "\"abc\"");
  CHECK_FALSE(version("ETag: \"abc\"").weak);
  CHECK(version("ETag: W/\"abc\"").weak);
  CHECK(version("Server: none").weak);
  for (const char* bad :
       {"ETag: abc", "ETag: \"a\"b\"", "ETag: \"", "ETag: \"a b\"", "ETag: \"a\r\nX-Evil: 1\""}) {
    INFO(bad);
    CHECK(version(bad).etag.empty());
  }
  CHECK(version("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT").mtime_ns == 784111777'000'000'000);
}

TEST_CASE("Retry-After is seconds or a date by the server's own clock") {
  const auto after = [](const char* line, const char* date = "X: y") {
    return head_of({"HTTP/1.1 503 Busy", date, line}).retry_after_s(784111770);
  };
  CHECK(after("Retry-After: 0") == 0);
  CHECK(after("Retry-After: 3") == 3);
  CHECK(after("Retry-After: 1000000000") == 1'000'000'000);
  CHECK(after("Retry-After: 99999999999999") == 1'000'000'000);
  CHECK(after("Retry-After: Sun, 06 Nov 1994 08:49:37 GMT") == 7);
  CHECK(after("Retry-After: Sun, 06 Nov 1994 08:49:37 GMT",
              "Date: Sun, 06 Nov 1994 08:49:35 GMT") == 2);
  CHECK(after("Retry-After: Sun, 06 Nov 1994 08:00:00 GMT") == 0);
  CHECK_FALSE(after("Retry-After: -1"));
  CHECK_FALSE(after("Retry-After: soon"));
  CHECK_FALSE(after("Server: none"));
}
