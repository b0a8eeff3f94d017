#include "headpond/store.h"

#include "headpond/http_options.h"
#include "headpond/io_options.h"
#include "headpond/memory_store.h"
#include "io/local_io.h"
#include "support/bytes.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

namespace {
Uri uri(std::string_view text) { return *Uri::parse(text); }
}  // namespace

TEST_CASE("StoreRegistry makes one store per root and shares it") {
  StoreRegistry registry;
  int made = 0;
  registry.add("test", [&](const Uri&) -> Result<std::shared_ptr<Store>> {
    ++made;
    return std::shared_ptr<Store>(std::make_shared<MemoryStore>());
  });
  auto first = registry.open(uri("test://a/x"));
  auto again = registry.open(uri("test://a/x"));
  auto other = registry.open(uri("test://a/y"));
  REQUIRE((first && again && other));
  CHECK(*first == *again);
  CHECK(*first != *other);
  CHECK(made == 2);
}

TEST_CASE("StoreRegistry names the schemes it knows") {
  StoreRegistry registry;
  registry.add("alpha", [](const Uri&) -> Result<std::shared_ptr<Store>> {
    return Error(ErrorCode::internal, "no");
  });
  registry.add("beta", [](const Uri&) -> Result<std::shared_ptr<Store>> {
    return Error(ErrorCode::internal, "no");
  });
  auto missing = registry.open(uri("gamma://host/x"));
  REQUIRE(!missing);
  CHECK(missing.error().code() == ErrorCode::unsupported);
  CHECK_THAT(missing.error().to_string(), ContainsSubstring("alpha://, beta://"));
  auto failed = registry.open(uri("alpha://host/x"));
  REQUIRE(!failed);
  CHECK(failed.error().code() == ErrorCode::internal);
}

TEST_CASE("StoreRegistry closes what it opened and opens nothing more") {
  StoreRegistry registry;
  auto memory = std::make_shared<MemoryStore>();
  registry.add("test", [&](const Uri&) -> Result<std::shared_ptr<Store>> {
    return std::shared_ptr<Store>(memory);
  });
  REQUIRE(registry.open(uri("test://a")));
  registry.close();
  CHECK(stat_blocking(*memory, "x").error().code() == ErrorCode::closed);
  CHECK(registry.open(uri("test://a")).error().code() == ErrorCode::closed);
}

TEST_CASE("the built-in stores read file:// and bare paths") {
  const TempDir dir;
  dir.write("folder/file", "hello");
  StoreRegistry registry;
  add_builtin_stores(registry, make_local_io({}, nullptr),
                     make_http_io({}, std::make_shared<SystemClock>(), nullptr));
  for (const std::string& root : {dir.path(), "file://" + dir.path(), dir.path() + "/"}) {
    auto store = registry.open(uri(root));
    REQUIRE(store);
    Bytes out(5);
    REQUIRE(read_blocking(**store, "folder/file", 0, out));
    CHECK(out == bytes_of("hello"));
    CHECK((*store)->describe() == dir.path());
  }
}
