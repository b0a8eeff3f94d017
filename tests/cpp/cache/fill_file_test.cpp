#include "cache/fill_file.h"

#include "cache/cache_fixture.h"

using namespace headpond;

TEST_CASE("FillFile: a block that is filled and published is read by everybody") {
  TestCache cache;
  const Block block = test_block(10'000);
  CHECK(!cache.open(block));
  const auto file = cache.fill(block);
  CHECK(file->missing() == std::vector<ByteRange>{{0, 10'000}});
  REQUIRE(file->write(0, payload_of(block)));
  CHECK(!cache.open(block));
  CHECK(file->complete());
  CHECK(*file->publish(nullptr));
  CHECK(cache.get(block) == payload_of(block));
}
