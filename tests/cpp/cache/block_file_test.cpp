#include "cache/block_file.h"

#include "cache/cache_fixture.h"

using namespace headpond;

TEST_CASE("PublishedBlock: every range of a block is read as it was written") {
  TestCache cache;
  const Block block = test_block(4096 + 100);
  cache.put(block);
  const Bytes payload = payload_of(block);
  const auto opened = cache.open(block);
  REQUIRE(opened);
  for (std::size_t start = 0; start <= payload.size(); start += 13) {
    for (std::size_t stop = start; stop <= payload.size(); stop += 97) {
      Bytes bytes(stop - start);
      const Piece piece{start, bytes};
      REQUIRE(*opened->read({&piece, 1}, Wait::allowed) == 1);
      CHECK(bytes == part(payload, start, stop - start));
    }
  }
}
