#include "cache/block_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <random>
#include <thread>

#include "cache/cache_fixture.h"

using namespace headpond;
namespace fs = std::filesystem;

namespace {

// Whether the damaged file led to a miss, is gone and was told to the accounts once.
bool is_dropped(TestCache& cache, const Block& block) {
  std::uint64_t told = 0;
  cache.folder->on_damaged([&](const BlockKey& key, std::uint64_t bytes) {
    if (key == block.key) told += bytes;
  });
  const auto size = fs::file_size(cache.block_path(block.key));
  const bool missed = !cache.get(block);
  return missed && !fs::exists(cache.block_path(block.key)) && told == (size + 4095) / 4096 * 4096;
}

}  // namespace

TEST_CASE("PublishedBlock: every range of a block is read as it was written") {
  TestCache cache;
  const Block block = test_block(4096 + 100);
  cache.put(block);
  const Bytes payload = payload_of(block);
  const auto opened = cache.open(block);
  REQUIRE(opened);
  CHECK(opened->bytes() == payload.size());
  for (std::size_t start = 0; start <= payload.size(); start += 13) {
    for (std::size_t stop = start; stop <= payload.size(); stop += 97) {
      Bytes bytes(stop - start);
      const Piece piece{start, bytes};
      REQUIRE(*opened->read({&piece, 1}, Wait::allowed) == 1);
      CHECK(bytes == part(payload, start, stop - start));
    }
  }
}

TEST_CASE("PublishedBlock: many pieces at once, neighbours and not, with short reads and whole") {
  TestCache cache;
  const Block block = test_block(200'001);
  cache.put(block);
  const Bytes payload = payload_of(block);
  const auto opened = cache.open(block);
  std::mt19937_64 random(1);
  for (int turn = 0; turn < 300; ++turn) {
    cache.ops->at_once = turn % 3 == 0 ? 1 + random() % 9000 : ~std::size_t{0};
    std::vector<Bytes> outs;
    std::vector<Piece> pieces;
    std::uint64_t at = random() % payload.size();
    const std::size_t count = 1 + random() % 100;
    for (std::size_t i = 0; i < count; ++i) {
      if (random() % 4 == 0) at = random() % payload.size();
      const std::size_t size = std::min<std::size_t>(random() % 6000, payload.size() - at);
      outs.emplace_back(size);
      pieces.push_back({at, {}});
      at += size;
    }
    for (std::size_t i = 0; i < count; ++i) pieces[i].out = outs[i];
    REQUIRE(*opened->read(pieces, Wait::allowed) == count);
    for (std::size_t i = 0; i < count; ++i)
      CHECK(outs[i] == part(payload, pieces[i].offset, outs[i].size()));
  }
}

TEST_CASE("PublishedBlock: a read beyond the end is refused, whatever overflows") {
  TestCache cache;
  const Block block = test_block(5000);
  cache.put(block);
  const auto opened = cache.open(block);
  Bytes bytes(10);
  for (const std::uint64_t offset : {4991ull, 5000ull, 5001ull, ~0ull, ~0ull - 4}) {
    const Piece piece{offset, bytes};
    const auto read = opened->read({&piece, 1}, Wait::allowed);
    REQUIRE(!read);
    CHECK(read.error().code() == ErrorCode::invalid_argument);
  }
  for (const std::uint64_t offset : {0ull, 4096ull, 4097ull, 5000ull}) {
    const Piece nothing{offset, {}};
    CHECK(*opened->read({&nothing, 1}, Wait::allowed) == 1);
  }
  CHECK(*opened->read({}, Wait::allowed) == 0);
  CHECK(cache.get(block) == payload_of(block));
}

TEST_CASE(
    "PublishedBlock: without waiting, pieces up to the first that is not in memory are filled") {
  TestCache cache{.temp = TempDir()};
  const Block block = test_block(40'960);
  cache.put(block);
  const auto opened = cache.open(block);
  Bytes first(100), second(100), third(100);
  const std::vector<Piece> pieces = {{0, first}, {8192, second}, {20'000, third}};
  int reads = 0;
  cache.ops->fault = [&](std::string_view call, int) {
    return call == "preadv" && ++reads == 2 ? -EAGAIN : 0;
  };
  const std::size_t filled = *opened->read(pieces, Wait::never);
  if (filled == 0) HP_SKIP("this file system cannot tell what is in memory");
  CHECK(filled == 1);
  CHECK(first == part(payload_of(block), 0, 100));
  cache.ops->fault = nullptr;
  // A page of a piece is there and the next is not: a short answer, and no damage.
  cache.ops->at_once = 4096;
  Bytes two_cells(8192);
  const Piece long_piece{0, two_cells};
  CHECK(*opened->read({&long_piece, 1}, Wait::never) == 0);
  CHECK(cache.get(block) == payload_of(block));
}

TEST_CASE("PublishedBlock: a cache in memory never says that it would wait") {
  TestCache cache;
  if (!cache.folder->in_memory()) HP_SKIP("no file system in memory here");
  const Block block = test_block(40'960);
  cache.put(block);
  Bytes bytes(40'960);
  const Piece piece{0, bytes};
  CHECK(*cache.open(block)->read({&piece, 1}, Wait::never) == 1);
}

TEST_CASE("PublishedBlock: with any byte of its file changed it is a miss or right, never wrong") {
  TestCache cache;
  const Block block = test_block(2 * 4096 + 808);
  cache.put(block);
  // Changed in place under another name, as rewriting thousands of files takes long.
  const std::string path = cache.block_path(block.key), spare = cache.temp.path("spare");
  const Bytes file = read_file(path);
  fs::rename(path, spare);
  CacheOps ops;
  const CacheFd spare_file(ops, ::open(spare.c_str(), O_RDWR));
  const auto layout = *layout_of(block);
  const std::size_t table_end = layout.head_bytes + 4 * layout.cells;
  REQUIRE(file.size() == layout.file_bytes());
  for (std::size_t at = 0; at < file.size(); ++at) {
    const std::byte changed = file[at] ^ static_cast<std::byte>(at % 255 + 1);
    REQUIRE(pwrite_all(ops, spare_file.get(), {&changed, 1}, at) == 0);
    fs::create_hard_link(spare, path);
    // What stands between the table and the payload means nothing.
    if (at >= table_end && at < layout.header_bytes) {
      CHECK(cache.get(block) == payload_of(block));
      fs::remove(path);
    } else {
      CHECK(is_dropped(cache, block));
    }
    REQUIRE(pwrite_all(ops, spare_file.get(), {&file[at], 1}, at) == 0);
  }
  CHECK(cache.folder->damaged_blocks() == file.size() - (layout.header_bytes - table_end));
}

TEST_CASE("PublishedBlock: cut at any length, or longer, it is a miss") {
  TestCache cache;
  const Block block = test_block(4096 + 70);
  cache.put(block);
  const std::string path = cache.block_path(block.key);
  const Bytes file = read_file(path);
  for (std::size_t size = 0; size <= file.size() + 2; ++size) {
    if (size == file.size()) continue;
    Bytes changed = file;
    changed.resize(size);
    write_file(path, changed);
    CHECK(is_dropped(cache, block));
  }
}

TEST_CASE("PublishedBlock: cut while it is open, it gives out nothing wrong") {
  TestCache cache;
  const Block block = test_block(40'000);
  for (const std::uintmax_t size : {0u, 100u, 4096u, 8191u, 8192u, 20'000u, 44'095u}) {
    cache.put(block);
    const auto opened = cache.open(block);
    fs::resize_file(cache.block_path(block.key), size);
    Bytes bytes(block.bytes());
    const Piece piece{0, bytes};
    const auto read = opened->read({&piece, 1}, Wait::allowed);
    REQUIRE(!read);
    CHECK(read.error().code() == ErrorCode::corrupt_data);
    CHECK(!fs::exists(cache.block_path(block.key)));
  }
}

TEST_CASE("PublishedBlock: sectors and cells that became zeros are a miss") {
  TestCache cache;
  const Block block = test_block(3 * 4096);
  cache.put(block);
  const std::string path = cache.block_path(block.key);
  const Bytes file = read_file(path);
  for (const std::size_t unit : {std::size_t{512}, std::size_t{4096}, file.size()}) {
    for (std::size_t at = 0; at < file.size(); at += unit) {
      Bytes changed = file;
      std::fill_n(changed.begin() + static_cast<std::ptrdiff_t>(at), unit, std::byte{0});
      if (changed == file) continue;
      write_file(path, changed);
      CHECK(is_dropped(cache, block));
    }
  }
  // A block whose bytes are zeros is none of that.
  const Block zeros = test_block(8192, "zeros");
  const auto fill = cache.fill(zeros);
  REQUIRE(fill->write(0, Bytes(8192)));
  REQUIRE(*fill->publish(nullptr));
  CHECK(cache.get(zeros) == Bytes(8192));
}

TEST_CASE("PublishedBlock: swapped files and swapped cells are a miss") {
  TestCache cache;
  const Block one = test_block(3 * 4096, "one"), two = test_block(3 * 4096, "two");
  const auto put_both = [&] {
    for (const Block* block : {&one, &two}) {
      if (!cache.open(*block)) cache.put(*block);
    }
  };
  put_both();
  const Bytes file_one = read_file(cache.block_path(one.key));
  const Bytes file_two = read_file(cache.block_path(two.key));
  write_file(cache.block_path(one.key), file_two);
  write_file(cache.block_path(two.key), file_one);
  CHECK(is_dropped(cache, one));
  CHECK(is_dropped(cache, two));

  // The head of one and all behind it of the other: the sums know their block.
  put_both();
  const std::size_t head = layout_of(one)->head_bytes;
  REQUIRE(head == layout_of(two)->head_bytes);
  Bytes mixed = file_one;
  std::copy(file_two.begin() + static_cast<std::ptrdiff_t>(head), file_two.end(),
            mixed.begin() + static_cast<std::ptrdiff_t>(head));
  write_file(cache.block_path(one.key), mixed);
  CHECK(is_dropped(cache, one));

  // Two cells of one block, with their sums.
  put_both();
  Bytes moved = file_one;
  const std::size_t payload = layout_of(one)->header_bytes;
  std::swap_ranges(moved.begin() + static_cast<std::ptrdiff_t>(payload),
                   moved.begin() + static_cast<std::ptrdiff_t>(payload + 4096),
                   moved.begin() + static_cast<std::ptrdiff_t>(payload + 4096));
  std::swap_ranges(moved.begin() + static_cast<std::ptrdiff_t>(head),
                   moved.begin() + static_cast<std::ptrdiff_t>(head + 4),
                   moved.begin() + static_cast<std::ptrdiff_t>(head + 4));
  write_file(cache.block_path(one.key), moved);
  CHECK(is_dropped(cache, one));
}

TEST_CASE("PublishedBlock: another block under the same key is told apart by its extents") {
  TestCache cache;
  const Block block = test_block(5000, "one");
  cache.put(block);
  Block other = test_block(5000, "two");
  other.key = block.key;
  CHECK(!cache.open(other));
  CHECK(!cache.open(block));  // removed: whoever asks next fills
  for (const auto change : {0, 1, 2, 3}) {
    cache.put(block);
    other = block;
    if (change == 0) other.extents[0].version.etag = "\"v2\"";
    if (change == 1) other.extents[0].version.size += 1;
    if (change == 2) other.extents[0].range = {1, 5001};
    if (change == 3) other.extents[0].version.weak = true;
    CHECK(!cache.open(other));
  }
}

TEST_CASE(
    "PublishedBlock: blocks of other sizes lie beside each other, later formats are not read") {
  TestCache cache;
  const Block small = test_block(4096), large = test_block(8192);
  cache.put(small);
  cache.put(large);
  CHECK(cache.get(small) == payload_of(small));
  CHECK(cache.get(large) == payload_of(large));
  cache.temp.write("cache/v2/blocks/ab/cd/something", "of a later version");
  Bytes file = read_file(cache.block_path(small.key));
  file[7] = std::byte{'2'};
  write_file(cache.block_path(small.key), file);
  CHECK(!cache.get(small));
  CHECK(fs::exists(cache.root() + "/v2/blocks/ab/cd/something"));
}

TEST_CASE("PublishedBlock: what is no file of ours is a miss and stays") {
  TestCache cache;
  const Block block = test_block(5000);
  cache.put(block);
  const std::string path = cache.block_path(block.key), away = cache.temp.path("away");
  fs::rename(path, away);
  fs::create_symlink(away, path);
  CHECK(!cache.get(block));
  CHECK(fs::is_symlink(path));
  fs::remove(path);
  fs::create_directory(path);
  CHECK(!cache.get(block));
  CHECK(fs::is_directory(path));
  fs::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(!cache.get(block));
  CHECK(fs::is_fifo(path));
  fs::remove(path);
  fs::rename(away, path);
  CHECK(cache.get(block) == payload_of(block));
}

TEST_CASE("PublishedBlock: links in place of its folders are not followed") {
  TestCache cache;
  const Block block = test_block(5000);
  cache.put(block);
  const fs::path leaf = fs::path(cache.block_path(block.key)).parent_path();
  for (const fs::path& level : {leaf, leaf.parent_path()}) {
    const std::string away = cache.temp.path("away");
    fs::rename(level, away);
    fs::create_directory_symlink(away, level);
    CHECK(!cache.get(block));
    CHECK(!cache.folder->remove_block(block.key));
    const auto fill = cache.fill(block);
    REQUIRE(fill->write(0, payload_of(block)));
    CHECK(!fill->publish(nullptr));
    fill->abandon();
    fs::remove(level);
    fs::rename(away, level);
    CHECK(cache.get(block) == payload_of(block));
  }
}

TEST_CASE("PublishedBlock: evicted while it is open, its bytes stay") {
  TestCache cache;
  const Block block = test_block(100'000);
  cache.put(block);
  const auto opened = cache.open(block);
  CHECK(*cache.folder->remove_block(block.key) == disk_bytes(*layout_of(block)));
  CHECK(*cache.folder->remove_block(block.key) == 0);
  Bytes bytes(block.bytes());
  const Piece piece{0, bytes};
  REQUIRE(*opened->read({&piece, 1}, Wait::allowed) == 1);
  CHECK(bytes == payload_of(block));
  CHECK(!cache.open(block));
}

TEST_CASE("PublishedBlock: found wrong after another took its place, the other stays") {
  TestCache cache;
  const Block block = test_block(5000);
  cache.put(block);
  const auto old = cache.open(block);
  const std::string path = cache.block_path(block.key);
  Bytes file = read_file(path);
  file.back() ^= std::byte{1};
  write_file(path, file);
  fs::rename(path, cache.temp.path("damaged"));
  cache.put(block);
  Bytes bytes(5000);
  const Piece piece{0, bytes};
  CHECK(!old->read({&piece, 1}, Wait::allowed));
  CHECK(cache.get(block) == payload_of(block));
}

TEST_CASE("PublishedBlock: a device that fails is an error, and the file stays") {
  TestCache cache;
  const Block block = test_block(5000);
  cache.put(block);
  const auto opened = cache.open(block);
  cache.ops->fault = [](std::string_view call, int) { return call == "preadv" ? -EIO : 0; };
  Bytes bytes(5000);
  const Piece piece{0, bytes};
  const auto read = opened->read({&piece, 1}, Wait::allowed);
  REQUIRE(!read);
  CHECK(read.error().code() == ErrorCode::io_failed);
  CHECK(!PublishedBlock::open(cache.folder, block));
  cache.ops->fault = nullptr;
  CHECK(cache.get(block) == payload_of(block));
}

TEST_CASE("PublishedBlock: a tool finds every wrong cell, and which block a file holds") {
  TestCache cache;
  const Block block = test_block(100 * 4096 + 5);
  cache.put(block);
  Block found;
  REQUIRE(*PublishedBlock::open(cache.folder, block.key, found));
  CHECK(found.extents == block.extents);
  Bytes file = read_file(cache.block_path(block.key));
  const std::size_t payload = layout_of(block)->header_bytes;
  for (const std::size_t cell : {0u, 63u, 64u, 99u, 100u})
    file[payload + cell * 4096] ^= std::byte{4};
  write_file(cache.block_path(block.key), file);
  const auto opened = cache.open(block);
  CHECK(*opened->wrong_cells() == std::vector<std::uint64_t>{0, 63, 64, 99, 100});
  CHECK(fs::exists(cache.block_path(block.key)));
  fs::resize_file(cache.block_path(block.key), payload + 98 * 4096 + 1);
  CHECK(*opened->wrong_cells() == std::vector<std::uint64_t>{0, 63, 64, 98, 99, 100});

  // Under a name that is not its own it is no block.
  const Block other = test_block(100 * 4096 + 5, "other");
  fs::create_directories(fs::path(cache.block_path(other.key)).parent_path());
  cache.folder->remove_block(block.key).value();
  cache.put(block);
  fs::rename(cache.block_path(block.key), cache.block_path(other.key));
  CHECK(!*PublishedBlock::open(cache.folder, other.key, found));
  CHECK(!fs::exists(cache.block_path(other.key)));
}

TEST_CASE("PublishedBlock: several threads read one block") {
  TestCache cache;
  const Block block = test_block(300'000);
  cache.put(block);
  const Bytes payload = payload_of(block);
  // Not the counting ones, which are for one thread.
  const auto folder = *CacheFolder::open(cache.root(), std::make_shared<CacheOps>());
  const auto opened = *PublishedBlock::open(folder, block);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int turn = 0; turn < 200; ++turn) {
        const std::size_t start = random() % payload.size();
        Bytes bytes(std::min<std::size_t>(random() % 20'000, payload.size() - start));
        const Piece piece{start, bytes};
        const auto read = opened->read({&piece, 1}, Wait::allowed);
        if (!read || bytes != part(payload, start, bytes.size())) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}
