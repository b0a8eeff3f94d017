// Files of format v1, committed: what this version writes is what every version reads.
#include <cstdlib>

#include "cache/cache_fixture.h"

using namespace headpond;
namespace fs = std::filesystem;

namespace {

ObjectVersion version(std::uint64_t size, const std::string& etag) {
  ObjectVersion version;
  version.size = size;
  version.etag = etag;
  return version;
}

// 5,000 bytes from the middle of a shard.
Block plain_block() {
  return make_block({{"https://origin.example/data/shard-0007.tar",
                      version(1'000'000, "\"686897696a7c876b7e\""),
                      {8192, 13'192}}});
}

// Three whole objects, of which one is weakly versioned and one a file.
Block bundle() {
  ObjectVersion weak = version(100, "W/\"1\""), file;
  weak.weak = true;
  file.size = 4096;
  file.mtime_ns = 1'700'000'000'123'456'789;
  file.inode = 4711;
  return make_block({{"s3://bucket/a.jpg", version(3000, "\"a\""), {0, 3000}},
                     {"https://origin.example/b.json", weak, {0, 100}},
                     {"/mnt/nfs/c.bin", file, {0, 4096}}});
}

Bytes fixture_payload(const Block& block) {
  Bytes payload(block.bytes());
  for (std::size_t i = 0; i < payload.size(); ++i)
    payload[i] = static_cast<std::byte>(i * 7 + i / 256);
  return payload;
}

struct Fixture {
  const char* file;
  const char* key;
  Block block;
};

std::vector<Fixture> fixtures() {
  return {{"v1-plain.block", "9a74f912fdef38c95c89c3d71d5f35a8", plain_block()},
          {"v1-bundle.block", "b9ed958e0c59784e1edea8ea5f667665", bundle()}};
}

}  // namespace

TEST_CASE("fixtures of format v1: what is written now is the same to the byte") {
  TestCache cache;
  for (const auto& [file, key, block] : fixtures()) {
    INFO(file);
    CHECK(block.key.hex() == key);
    const auto fill = cache.fill(block);
    REQUIRE(fill->write(0, fixture_payload(block)));
    REQUIRE(*fill->publish(nullptr));
    CHECK(read_file(cache.block_path(block.key)) ==
          read_file(std::string(HEADPOND_FIXTURES "/") + file));
  }
}

TEST_CASE("fixtures of format v1: they are read, and tell which block they are") {
  TestCache cache;
  for (const auto& [file, key, block] : fixtures()) {
    INFO(file);
    const Bytes payload = fixture_payload(block);
    fs::create_directories(fs::path(cache.block_path(block.key)).parent_path());
    fs::copy_file(std::string(HEADPOND_FIXTURES "/") + file, cache.block_path(block.key));
    CHECK(cache.get(block) == payload);
    Block found;
    const auto opened = PublishedBlock::open(cache.folder, block.key, found);
    REQUIRE((opened && *opened));
    CHECK(found.key == block.key);
    CHECK(found.extents == block.extents);
    CHECK((*opened)->wrong_cells()->empty());
  }
  CHECK(cache.folder->damaged_blocks() == 0);
}
