#include <cerrno>
#include <set>

#include "headpond/result.h"
#include "support/catch.h"

using namespace headpond;

namespace {
Result<int> fails() { return Error(ErrorCode::corrupt_data, "bad magic"); }
Result<std::string> wraps() {
  auto value = fails();
  if (!value)
    return std::move(value).error().in("sample 3").at_uri("/a/b").at_range({4, 8}).at_sample(3);
  return std::string("fine");
}
}  // namespace

TEST_CASE("Error: context is printed from the outermost layer inwards") {
  auto result = wraps();
  REQUIRE(!result);
  CHECK(result.error().to_string() == "sample 3 of /a/b[4, 8): bad magic");
  CHECK(Error(result.error()).in("epoch 2").to_string() ==
        "epoch 2: sample 3 of /a/b[4, 8): bad magic");
  CHECK(result.error().sample_index() == 3u);
}

TEST_CASE("Error: the first layer that knows a place wins") {
  auto error = Error(ErrorCode::io_failed, "x").at_uri("inner").at_uri("outer");
  CHECK(error.uri() == "inner");
}

TEST_CASE("Error: every kind has a number, a class and advice of its own") {
  std::set<std::string> numbers;
  for (const auto& kind : error_kinds()) {
    CHECK(numbers.insert(kind.number).second);
    CHECK(std::string(kind.advice).size() > 10);
  }
}

TEST_CASE("Error: system errors map to what a caller can act on") {
  CHECK(system_error(ENOENT, "open", "x").code() == ErrorCode::not_found);
  CHECK(system_error(EACCES, "open", "x").code() == ErrorCode::access_denied);
  CHECK(system_error(EMFILE, "open", "x").code() == ErrorCode::resource_limit);
  CHECK(system_error(EIO, "read", "x").to_string() == "read x: Input/output error");
}
