#include "cache/block_format.h"

#include <cstring>

#include "cache/cache_fixture.h"

using namespace headpond;

namespace {

Block bundle() {
  std::vector<BlockExtent> extents;
  for (const char* name : {"a", "b\xff", "c/with a longer name"}) {
    ObjectVersion version;
    version.size = 1000;
    version.mtime_ns = -7;
    version.inode = 42;
    version.etag = std::string(name) == "a" ? "" : "W/\"x\"";
    version.weak = std::string(name) != "a";
    extents.push_back({std::string("https://origin/") + name, version, {0, 1000}});
  }
  return make_block(std::move(extents));
}

Bytes header_of(const Block& block) {
  Bytes header = encode_head(block);
  header.resize(layout_of(block)->header_bytes);
  return header;
}

}  // namespace

TEST_CASE("block format: what is encoded is decoded") {
  for (const Block& block : {test_block(1), test_block(4096), test_block(4097, "x", 1ull << 40),
                             test_block(4 << 20), bundle()}) {
    const auto found = decode_header(header_of(block));
    REQUIRE(found);
    CHECK(found->block.key == block.key);
    CHECK(found->block.extents == block.extents);
    CHECK(found->layout.file_bytes() == layout_of(block)->file_bytes());
  }
}

TEST_CASE("block format: the payload begins at a multiple of 4 KiB, and the table fits before it") {
  for (std::uint64_t bytes : {1ull, 4096ull, 4097ull, 3ull << 20, 4ull << 20, 1ull << 30}) {
    const auto layout = *layout_of(test_block(bytes));
    CHECK(layout.header_bytes % 4096 == 0);
    CHECK(layout.head_bytes + 4 * layout.cells <= layout.header_bytes);
    CHECK(layout.head_bytes + 4 * layout.cells + 4096 > layout.header_bytes);
    CHECK((layout.cells - 1) * kCellBytes + layout.cell_bytes(layout.cells - 1) == bytes);
    CHECK(disk_bytes(layout) % 4096 == 0);
  }
  CHECK(layout_of(test_block(4 << 20))->header_bytes == 8192);
}

TEST_CASE("block format: a bundle of small objects costs little more than their bytes") {
  std::vector<BlockExtent> extents;
  for (int i = 0; i < 419; ++i) {  // 10 KB each, 4 MiB together
    ObjectVersion version;
    version.size = 10'000;
    version.etag = "\"0123456789abcdef0123456789abcdef\"";
    const std::string name = std::to_string(100'000'000 + i) + ".jpg";
    extents.push_back(
        {"https://storage.example/bucket/a/dataset/train/" + name, version, {0, 10'000}});
  }
  const Block block = make_block(std::move(extents));
  CHECK(static_cast<double>(disk_bytes(*layout_of(block))) <
        1.03 * static_cast<double>(block.bytes()));
}

TEST_CASE("block format: a block that the format cannot hold is refused") {
  CHECK(!layout_of(Block{}));
  CHECK(!layout_of(test_block(0)));
  CHECK(!layout_of(test_block((1ull << 30) + 1)));
  Block backwards = test_block(10);
  backwards.extents[0].range = {10, 0};
  CHECK(!layout_of(backwards));
  Block wraps = test_block(10);
  wraps.extents.push_back(wraps.extents[0]);
  wraps.extents[0].range = {0, ~0ull};
  wraps.extents[1].range = {0, 2};
  CHECK(!layout_of(wraps));
}

TEST_CASE("block format: a header with any byte changed, or cut anywhere, is refused") {
  for (const Block& block : {test_block(5000), bundle()}) {
    const Bytes header = header_of(block);
    const std::size_t head = layout_of(block)->head_bytes;
    for (std::size_t at = 0; at < head; ++at) {
      for (const int change : {1, 0x80, 0xff}) {
        Bytes changed = header;
        changed[at] ^= static_cast<std::byte>(change);
        CHECK(!decode_header(changed));
      }
    }
    for (std::size_t size = 0; size < header.size(); ++size)
      CHECK(!decode_header(std::span(header).first(size)));
  }
}

TEST_CASE("block format: a key depends on every part of every extent") {
  const Block block = bundle();
  const auto key_with = [&](auto change) {
    auto extents = block.extents;
    change(extents);
    return make_block(extents).key;
  };
  std::set<std::string> keys = {block.key.hex()};
  const auto differs = [&](auto change) { CHECK(keys.insert(key_with(change).hex()).second); };
  differs([](auto& e) { e[1].uri += "x"; });
  differs([](auto& e) { e[1].version.size += 1; });
  differs([](auto& e) { e[1].version.mtime_ns += 1; });
  differs([](auto& e) { e[1].version.inode += 1; });
  differs([](auto& e) { e[1].version.etag += "x"; });
  differs([](auto& e) { e[1].version.weak = false; });
  differs([](auto& e) { e[1].range.start += 1; });
  differs([](auto& e) { e[1].range.stop -= 1; });
  differs([](auto& e) { std::swap(e[0], e[1]); });
  differs([](auto& e) { e.pop_back(); });
  CHECK(key_with([](auto&) {}) == block.key);
}

TEST_CASE("block format: zeros, another place and another block give another sum") {
  const BlockKey key = test_block(4096, "a").key, other = test_block(4096, "b").key;
  const Bytes zeros(4096), data = pattern(4096);
  for (const Bytes* bytes : {&zeros, &data}) {
    const std::uint32_t sum = cell_sum(key, 0, *bytes);
    CHECK(sum != 0);
    CHECK(sum != cell_sum(other, 0, *bytes));
    for (std::uint64_t cell = 1; cell < 1024; ++cell) CHECK(sum != cell_sum(key, cell, *bytes));
  }
  CHECK(cell_sum(key, 0, zeros) != cell_sum(key, 0, data));
  CHECK(cell_sum(0u) == 1);
  CHECK(cell_sum(7u) == 7);
}
