#include <thread>

#include "io/http_fixture.h"
#include "support/catch.h"
#include "support/http_simulation.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {

// Servers of another kind than the plain one.
class OtherFixture final : public HttpFixture {
 public:
  explicit OtherFixture(OriginAnswer answer) {
    origin.script([answer = std::move(answer)](const OriginRequest&) { return answer; });
  }
};

OriginAnswer with(std::vector<std::string> headers) {
  OriginAnswer answer;
  answer.headers = std::move(headers);
  return answer;
}

}  // namespace

TEST_CASE("an http store conforms") {
  store_conformance([] { return std::make_unique<HttpFixture>(); });
}

TEST_CASE("an http store conforms on a server without entity tags") {
  store_conformance([] { return std::make_unique<OtherFixture>(with({"-ETag"})); });
}

TEST_CASE("an http store conforms on a server without ranges") {
  OriginAnswer answer;
  answer.ignore_range = true;
  store_conformance([&] { return std::make_unique<OtherFixture>(answer); });
}

TEST_CASE("an http store conforms on a server that closes after every answer") {
  OriginAnswer answer;
  answer.close_after = true;
  store_conformance([&] { return std::make_unique<OtherFixture>(answer); });
}

TEST_CASE("an http store conforms on servers that do not say lengths") {
  for (const bool chunked : {true, false}) {
    DYNAMIC_SECTION((chunked ? "chunked" : "until the connection ends")) {
      OriginAnswer answer;
      answer.chunked = chunked;
      answer.until_close = !chunked;
      store_conformance([&] { return std::make_unique<OtherFixture>(answer); });
    }
  }
}
