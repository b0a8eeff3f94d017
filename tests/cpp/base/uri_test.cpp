#include "headpond/uri.h"

#include "support/catch.h"

using namespace headpond;

TEST_CASE("Uri: a bare path is a file, and prints as it was") {
  for (const char* path : {"/data/x", "data/x y", "./a%20b", "C:/x", "a:b"}) {
    auto uri = Uri::parse(path);
    REQUIRE(uri);
    CHECK(uri->scheme == "file");
    CHECK(uri->path == path);
    CHECK(uri->to_string() == path);
  }
}

TEST_CASE("Uri: file:// decodes percent escapes and refuses a host") {
  CHECK(Uri::parse("file:///a%20b%C3%A9/%zz")->path == "/a b\xC3\xA9/%zz");
  CHECK(Uri::parse("file://localhost/a")->path == "/a");
  REQUIRE(!Uri::parse("file://data/train"));
  CHECK(Uri::parse("file://data/train").error().message().find("file:///data/train") !=
        std::string::npos);
}

TEST_CASE("Uri: secrets are not printed") {
  const auto uri = Uri::parse("HTTPS://user:pass@host:81/a/b?X-Amz-Signature=abc");
  REQUIRE(uri);
  CHECK(uri->scheme == "https");
  CHECK(uri->query == "X-Amz-Signature=abc");
  CHECK(uri->to_string() == "https://host:81/a/b");
}

TEST_CASE("Uri: empty text and NUL bytes are refused") {
  CHECK(!Uri::parse(""));
  CHECK(!Uri::parse(std::string_view("a\0b", 3)));
}

TEST_CASE("Uri: join puts one slash between") {
  CHECK(Uri::parse("/a/")->join("b/c").path == "/a/b/c");
  CHECK(Uri::parse("/a")->join("b").path == "/a/b");
  CHECK(Uri::parse("/a")->join("").path == "/a");
}
