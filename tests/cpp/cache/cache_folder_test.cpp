#include "cache/cache_folder.h"

#include "cache/cache_fixture.h"

using namespace headpond;

TEST_CASE("CacheFolder: opens again what it made, with the same node id") {
  TestCache cache;
  const auto again = CacheFolder::open(cache.root() + "/", cache.ops);
  REQUIRE(again);
  CHECK((*again)->node_id() == cache.folder->node_id());
  CHECK((*again)->identity() == cache.folder->identity());
}
