// What objects are called in what is kept of them.
#include "format/store_reading.h"
#include "support/catch.h"

using namespace headpond;

namespace {

std::string key_of(const std::string& root, const std::string& name) {
  auto manifest = Manifest::build(*Uri::parse(root), {{name, {}}});
  REQUIRE(manifest);
  return object_key(**manifest, 0);
}

}  // namespace

TEST_CASE("object_key: a query that names the object counts, a signature and userinfo do not") {
  const std::string root = "https://user:secret@host/data";
  CHECK(key_of(root, "a.tar") == "https://host/data/a.tar");
  CHECK(key_of(root, "a.tar?v=1") == "https://host/data/a.tar?v=1");
  CHECK(key_of(root, "a.tar?v=2") != key_of(root, "a.tar?v=1"));
  for (const std::string query :
       {"X-Amz-Signature=abc&X-Amz-Date=1", "sig=abc", "token=abc", "v=1&Signature=abc"})
    CHECK(key_of(root, "a.tar?" + query) == "https://host/data/a.tar");
}

TEST_CASE("object_key: in a local name a question mark is a letter") {
  CHECK(key_of("/data", "a.tar?token=1") == "/data/a.tar?token=1");
}
