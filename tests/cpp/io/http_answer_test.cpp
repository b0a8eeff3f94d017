#include "io/http_answer.h"

#include "support/catch.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

ResponseHead head_of(std::initializer_list<std::string> lines) {
  ResponseHead head;
  for (const auto& line : lines) head.add_line(line);
  return head;
}

const Asked kAsked{100, 50, false, {}};

FailureKind kind_of_answer(const ResponseHead& head, const Asked& asked = kAsked) {
  auto verdict = judge_read(head, asked, 0);
  REQUIRE(std::holds_alternative<Failure>(verdict));
  return std::get<Failure>(verdict).kind;
}

ErrorCode code_of_answer(const ResponseHead& head, const Asked& asked = kAsked) {
  auto verdict = judge_read(head, asked, 0);
  REQUIRE(std::holds_alternative<Failure>(verdict));
  return std::get<Failure>(verdict).error.code();
}

BodyPlan plan_of(const ResponseHead& head, const Asked& asked = kAsked) {
  auto verdict = judge_read(head, asked, 0);
  if (auto* failure = std::get_if<Failure>(&verdict)) FAIL(failure->error.message());
  return std::get<BodyPlan>(verdict);
}

ObjectVersion tagged(const char* etag, std::uint64_t size = ObjectVersion::kAnySize) {
  ObjectVersion version;
  version.etag = etag;
  version.weak = version.etag.starts_with("W/");
  version.size = size;
  return version;
}

}  // namespace

TEST_CASE("a range is taken only if it is the one that was asked for") {
  const auto good = plan_of(head_of({"HTTP/1.1 206 OK", "Content-Range: bytes 100-149/1000",
                                     "Content-Length: 50", "ETag: \"a\""}));
  CHECK(good.take == 50);
  CHECK(good.skip == 0);
  CHECK(good.version == head_of({"HTTP/1.1 206 OK", "ETag: \"a\""}).version(1000));
  const auto at_end = plan_of(head_of({"HTTP/1.1 206 OK", "Content-Range: bytes 100-119/120"}));
  CHECK(at_end.take == 20);
  CHECK(plan_of(head_of({"HTTP/1.1 206 OK", "Content-Range: bytes 100-149/*"})).take == 50);
  for (const char* range :
       {"Content-Range: bytes 0-49/1000", "Content-Range: bytes 101-150/1000",
        "Content-Range: bytes 100-148/1000", "Content-Range: bytes 100-150/1000",
        "Content-Range: bytes 100-119/*", "Content-Range: bytes */1000",
        "Content-Range: bytes 7-8/9", "Content-Range: rubbish", "Server: no range"}) {
    INFO(range);
    CHECK(kind_of_answer(head_of({"HTTP/1.1 206 OK", range})) == FailureKind::wrong);
    CHECK(code_of_answer(head_of({"HTTP/1.1 206 OK", range})) == ErrorCode::corrupt_data);
  }
  CHECK(kind_of_answer(head_of({"HTTP/1.1 206 OK", "Content-Range: bytes 100-149/1000",
                                "Content-Length: 49"})) == FailureKind::wrong);
  CHECK(kind_of_answer(head_of({"HTTP/1.1 206 OK", "Content-Range: bytes 100-149/1000",
                                "Content-Type: multipart/byteranges"})) == FailureKind::wrong);
  const auto encoded =
      head_of({"HTTP/1.1 206 OK", "Content-Range: bytes 100-149/1000", "Content-Encoding: gzip"});
  CHECK(kind_of_answer(encoded) == FailureKind::final);
  CHECK(code_of_answer(encoded) == ErrorCode::unsupported);
}

TEST_CASE("the whole object for a range is used up to 8 MiB") {
  const auto small = plan_of(head_of({"HTTP/1.1 200 OK", "Content-Length: 120"}));
  CHECK(small.skip == 100);
  CHECK(small.take == 20);
  const auto behind = plan_of(head_of({"HTTP/1.1 200 OK", "Content-Length: 7"}));
  CHECK(behind.take == 0);
  CHECK(plan_of(head_of({"HTTP/1.1 200 OK", "Content-Length: 8388608"})).take == 50);
  CHECK(code_of_answer(head_of({"HTTP/1.1 200 OK", "Content-Length: 8388609"})) ==
        ErrorCode::unsupported);
  const Asked whole{0, 10'000'000, true, {}};
  CHECK(plan_of(head_of({"HTTP/1.1 200 OK", "Content-Length: 10000000"}), whole).take ==
        10'000'000);
  CHECK(kind_of_answer(head_of({"HTTP/1.1 206 OK", "Content-Range: bytes 0-9/10"}), whole) ==
        FailureKind::wrong);
}

TEST_CASE("what is behind the end is empty, if the server says where the end is") {
  CHECK(plan_of(head_of({"HTTP/1.1 416 No", "Content-Range: bytes */100"})).take == 0);
  CHECK(plan_of(head_of({"HTTP/1.1 416 No", "Content-Range: bytes */100"})).version.size == 100);
  CHECK(kind_of_answer(head_of({"HTTP/1.1 416 No", "Content-Range: bytes */101"})) ==
        FailureKind::wrong);
  CHECK(kind_of_answer(head_of({"HTTP/1.1 416 No"})) == FailureKind::wrong);
  const Asked known{100, 50, false, tagged("", 100)};
  CHECK(plan_of(head_of({"HTTP/1.1 416 No"}), known).take == 0);
  const Asked larger{100, 50, false, tagged("", 200)};
  CHECK(code_of_answer(head_of({"HTTP/1.1 416 No", "Content-Range: bytes */90"}), larger) ==
        ErrorCode::object_changed);
}

TEST_CASE("versions: strong tags decide alone, else everything that both say") {
  CHECK(same_object(tagged("\"a\""), tagged("\"a\"")));
  CHECK_FALSE(same_object(tagged("\"a\""), tagged("\"b\"")));
  CHECK_FALSE(same_object(tagged("W/\"a\""), tagged("W/\"b\"")));
  CHECK_FALSE(same_object(tagged("\"a\"", 1), tagged("\"a\"", 2)));
  CHECK(same_object(tagged("\"a\"", 1), tagged("\"a\"")));
  CHECK(same_object({}, tagged("\"a\"", 1)));
  auto old = tagged("\"a\"");
  auto young = old;
  old.mtime_ns = 1;
  young.mtime_ns = 2;
  CHECK(same_object(old, young));
  old.etag = young.etag = "W/\"a\"";
  old.weak = young.weak = true;
  CHECK_FALSE(same_object(old, young));
  old.etag.clear();
  CHECK_FALSE(same_object(old, young));
  young.mtime_ns = 0;
  CHECK(same_object(old, young));
}

TEST_CASE("each status is what it means") {
  const auto answer = [](int status) {
    return head_of({"HTTP/1.1 " + std::to_string(status) + " Text"});
  };
  struct Row {
    int status;
    FailureKind kind;
    ErrorCode code;
  };
  for (const Row& row :
       std::initializer_list<Row>{{404, FailureKind::final, ErrorCode::not_found},
                                  {410, FailureKind::final, ErrorCode::not_found},
                                  {401, FailureKind::final, ErrorCode::access_denied},
                                  {403, FailureKind::final, ErrorCode::access_denied},
                                  {407, FailureKind::final, ErrorCode::access_denied},
                                  {412, FailureKind::final, ErrorCode::object_changed},
                                  {400, FailureKind::final, ErrorCode::unavailable},
                                  {414, FailureKind::final, ErrorCode::unavailable},
                                  {501, FailureKind::final, ErrorCode::unsupported},
                                  {408, FailureKind::refused, ErrorCode::unavailable},
                                  {425, FailureKind::refused, ErrorCode::unavailable},
                                  {500, FailureKind::refused, ErrorCode::unavailable},
                                  {507, FailureKind::refused, ErrorCode::unavailable},
                                  {429, FailureKind::busy, ErrorCode::unavailable},
                                  {503, FailureKind::busy, ErrorCode::unavailable},
                                  {502, FailureKind::gateway, ErrorCode::unavailable},
                                  {504, FailureKind::gateway, ErrorCode::unavailable},
                                  {204, FailureKind::wrong, ErrorCode::corrupt_data},
                                  {203, FailureKind::wrong, ErrorCode::corrupt_data},
                                  {304, FailureKind::wrong, ErrorCode::corrupt_data},
                                  {0, FailureKind::wrong, ErrorCode::corrupt_data}}) {
    INFO(row.status);
    CHECK(kind_of_answer(answer(row.status)) == row.kind);
    CHECK(code_of_answer(answer(row.status)) == row.code);
  }
  const auto verdict = judge_read(answer(503), kAsked, 0);
  CHECK_THAT(std::get<Failure>(verdict).error.message(), ContainsSubstring("HTTP 503 Text"));
}

TEST_CASE("a size comes from HEAD, else from one byte") {
  const auto size = [](const ResponseHead& head, bool by_head) -> std::int64_t {
    auto verdict = judge_stat(head, by_head, {}, 0);
    if (std::holds_alternative<Failure>(verdict)) return -1;
    if (std::holds_alternative<std::monostate>(verdict)) return -2;
    return static_cast<std::int64_t>(std::get<ObjectVersion>(verdict).size);
  };
  CHECK(size(head_of({"HTTP/1.1 200 OK", "Content-Length: 9"}), true) == 9);
  CHECK(size(head_of({"HTTP/1.1 200 OK"}), true) == -2);
  CHECK(size(head_of({"HTTP/1.1 200 OK", "Content-Length: 9", "Content-Encoding: gzip"}), true) ==
        -2);
  for (const char* refused :
       {"HTTP/1.1 403 x", "HTTP/1.1 404 x", "HTTP/1.1 405 x", "HTTP/1.1 501 x"})
    CHECK(size(head_of({refused}), true) == -2);
  CHECK(size(head_of({"HTTP/1.1 410 x"}), true) == -1);
  CHECK(size(head_of({"HTTP/1.1 206 OK", "Content-Range: bytes 0-0/9"}), false) == 9);
  CHECK(size(head_of({"HTTP/1.1 206 OK", "Content-Range: bytes 0-0/*"}), false) == -1);
  CHECK(size(head_of({"HTTP/1.1 200 OK", "Content-Length: 9"}), false) == 9);
  CHECK(size(head_of({"HTTP/1.1 416 x", "Content-Range: bytes */0"}), false) == 0);
  CHECK(size(head_of({"HTTP/1.1 416 x", "Content-Range: bytes */5"}), false) == -1);
  CHECK(size(head_of({"HTTP/1.1 404 x"}), false) == -1);
}

TEST_CASE("an answer without validators does not loosen the version that is held to") {
  Asked asked = kAsked;
  asked.expected = tagged("\"a\"", 1000);
  const auto silent =
      plan_of(head_of({"HTTP/1.1 206 OK", "Content-Range: bytes 100-149/1000"}), asked);
  CHECK(silent.version.etag == "\"a\"");
  CHECK(!silent.version.weak);
  asked.expected = silent.version;
  CHECK(code_of_answer(
            head_of({"HTTP/1.1 206 OK", "Content-Range: bytes 100-149/1000", "ETag: \"b\""}),
            asked) == ErrorCode::object_changed);
}

TEST_CASE("an object wanted whole and cut is taken from its start where a server gives no ranges") {
  Asked asked;
  asked.first = asked.before = 10 << 20;
  asked.bytes = 40 << 20;
  const auto head = head_of({"HTTP/1.1 200 OK", "Content-Length: " + std::to_string(50 << 20)});
  CHECK(plan_of(head, asked).all);
  asked.before = 0;  // a range of it only
  CHECK(code_of_answer(head, asked) == ErrorCode::unsupported);
}
