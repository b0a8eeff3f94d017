#include "cache/cached_store.h"

#include <atomic>
#include <filesystem>

#include "cache/open_cache.h"
#include "headpond/memory_store.h"
#include "support/bytes.h"
#include "support/catch.h"
#include "support/faulty_store.h"
#include "support/store_conformance.h"
#include "support/temp_dir.h"
#include "support/wrapped_store.h"

using namespace headpond;

namespace {

// Far away: it never answers on the spot. Counts what it is asked for.
class RemoteStore final : public WrappedStore {
 public:
  using WrappedStore::WrappedStore;
  std::atomic<std::uint64_t> reads = 0;
  std::atomic<std::uint64_t> bytes = 0;

  void read(std::span<ReadRequest> requests) override {
    reads += requests.size();
    for (const ReadRequest& request : requests) bytes += request.out.size();
    WrappedStore::read(requests);
  }
  Result<std::size_t> read_now(std::string_view, const ObjectVersion&, std::span<const Piece>,
                               Wait) override {
    return std::size_t{0};
  }
  bool is_remote() const override { return true; }
};

class Objects final : public ObjectList {
 public:
  explicit Objects(std::vector<ObjectInfo> objects) : objects_(std::move(objects)) {}
  std::uint64_t size() const override { return objects_.size(); }
  void name(std::uint64_t index, std::string& name) const override { name = objects_[index].name; }
  ObjectVersion version(std::uint64_t index) const override { return objects_[index].version; }
  std::uint64_t object_size(std::uint64_t index) const override {
    return objects_[index].version.size;
  }
  std::optional<std::uint64_t> find(std::string_view name) const override {
    for (std::uint64_t i = 0; i < objects_.size(); ++i) {
      if (objects_[i].name == name) return i;
    }
    return std::nullopt;
  }

 private:
  std::vector<ObjectInfo> objects_;
};

struct Fixture : StoreFixture {
  TempDir dir;
  std::shared_ptr<MemoryStore> memory = std::make_shared<MemoryStore>();
  std::shared_ptr<RemoteStore> remote = std::make_shared<RemoteStore>(memory);
  std::shared_ptr<BlockCache> cache;
  std::shared_ptr<CachedStore> cached;

  explicit Fixture(bool listed = false, std::vector<std::uint64_t> sizes = {}) {
    for (std::size_t i = 0; i < sizes.size(); ++i) memory->put(name_of(i), bytes_of(i, sizes[i]));
    CacheOptions options;
    options.folder = dir.path("cache");
    options.size_bytes = std::uint64_t{1} << 30;
    cache = *open_block_cache(options, std::make_shared<CacheOps>(),
                              std::make_shared<SystemClock>(), nullptr);
    std::shared_ptr<const BlockMap> blocks;
    if (listed) {
      blocks = std::make_shared<const BlockMap>(std::make_shared<Objects>(*list_blocking(*memory)),
                                                "http://origin/data");
    }
    cached = std::make_shared<CachedStore>(remote, cache, *Uri::parse("http://user:pw@origin/data"),
                                           blocks);
  }
  ~Fixture() override { cached->close(); }

  static std::string name_of(std::size_t index) {
    std::string digits = std::to_string(index);
    return "o" + std::string(5 - digits.size(), '0') + digits;
  }
  static Bytes bytes_of(std::size_t index, std::uint64_t size) {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i)
      bytes[i] = static_cast<std::byte>((i * 31 + index * 7 + (i >> 12)) % 253);
    return bytes;
  }
  // The bytes by `read_now` where they are there, else by `read`.
  Bytes get(std::size_t index, std::uint64_t start, std::uint64_t size) {
    const auto info = stat_blocking(*memory, name_of(index));
    Bytes out(size);
    const Piece piece{start, out};
    const auto now = cached->read_now(name_of(index), info->version, {&piece, 1}, Wait::allowed);
    REQUIRE(now);
    if (*now == 1) return out;
    const auto read = read_blocking(*cached, name_of(index), start, out, info->version);
    REQUIRE(read);
    CHECK(read->bytes == size);
    return out;
  }
  bool is_right(std::size_t index, std::uint64_t whole, std::uint64_t start, std::uint64_t size) {
    const Bytes all = bytes_of(index, whole);
    const Bytes got = get(index, start, size);
    return std::equal(got.begin(), got.end(), all.begin() + static_cast<std::ptrdiff_t>(start));
  }
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(dir.path("cache/v1/blocks")))
      count += entry.is_regular_file() ? 1 : 0;
    return count;
  }

  Store& store() override { return *cached; }
  void put(const std::string& object, const Bytes& bytes) override { memory->put(object, bytes); }
  bool has_blocking_path() const override { return false; }
};

constexpr std::uint64_t kMiB = 1 << 20;

}  // namespace

TEST_CASE("a cached store conforms") {
  store_conformance([] { return std::make_unique<Fixture>(); });
}

TEST_CASE("CachedStore: each byte of a large object is asked for once, whatever is read") {
  const std::uint64_t size = 9 * kMiB + 12'345;
  Fixture f(true, {size});
  CHECK(f.is_right(0, size, 4 * kMiB - 100, 200));  // over the border of two blocks
  CHECK(f.is_right(0, size, 0, size));
  CHECK(f.is_right(0, size, size - 1, 1));
  CHECK(f.remote->bytes == size);
  CHECK(f.files() == 3);
}

TEST_CASE("CachedStore: small neighbours share blocks, and come with one another") {
  std::vector<std::uint64_t> sizes;
  for (std::size_t i = 0; i < 1000; ++i) sizes.push_back(i % 97 == 0 ? 0 : 5000 + i * 13 % 9000);
  sizes[500] = 5 * kMiB;  // a large one in between
  std::uint64_t total = 0;
  for (const auto size : sizes) total += size;
  Fixture f(true, sizes);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::size_t index = i * 611 % sizes.size();
    CHECK(f.is_right(index, sizes[index], 0, sizes[index]));
  }
  CHECK(f.remote->bytes == total);
  CHECK(f.files() <= total / (4 * kMiB) + 4);
  const auto asked = f.remote->reads.load();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 100) CHECK(f.is_right(i, sizes[i], 50, sizes[i] - 60));
  }
  CHECK(f.remote->reads == asked);
}

TEST_CASE("CachedStore: a list in another run of the program leads to the same blocks") {
  const std::vector<std::uint64_t> sizes(300, 20'000);
  const std::vector<ObjectInfo> objects = [&] {
    Fixture f(true, sizes);
    return *list_blocking(*f.memory);
  }();
  const BlockMap first(std::make_shared<Objects>(objects), "http://origin/data");
  const BlockMap second(std::make_shared<Objects>(objects), "http://origin/data/");
  REQUIRE(first.size() == 2);
  for (std::uint64_t block = 0; block < first.size(); ++block) {
    CHECK(first.key(block) == second.key(block));
    CHECK(first.block(block)->key == *first.key(block));
    CHECK(first.block(block)->extents.front().uri.find("pw") == std::string::npos);
  }
}

TEST_CASE("CachedStore: what has only a size for a version is read past the cache") {
  Fixture f(false, {10'000});
  ObjectVersion version;
  version.size = 10'000;
  for (int i = 0; i < 2; ++i) {
    Bytes out(1000);
    REQUIRE(read_blocking(*f.cached, Fixture::name_of(0), 5, out, version));
  }
  CHECK(f.remote->reads == 2);
  CHECK(f.files() == 0);
}

TEST_CASE("BlockMap: every byte of every object has its place in one block") {
  std::vector<ObjectInfo> objects;
  const std::vector<std::uint64_t> sizes{
      0, 1, kMiB / 4 - 1, kMiB / 4, 100, 0, 4 * kMiB, 4 * kMiB + 1, 300, 9 * kMiB, 0, 7};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ObjectVersion version;
    version.size = sizes[i];
    version.mtime_ns = 5;
    objects.push_back({Fixture::name_of(i), version});
  }
  for (int i = 0; i < 60; ++i) {
    ObjectVersion version;
    version.size = 200'000;
    version.mtime_ns = 5;
    objects.push_back({"p" + std::to_string(100 + i), version});
  }
  const BlockMap map(std::make_shared<Objects>(objects), "http://o");
  std::vector<std::uint64_t> filled(map.size(), 0);
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const std::uint64_t size = objects[i].version.size;
    for (std::uint64_t at = 0; at < size; at = block_range(at, size).stop) {
      const auto place = map.place(i, at);
      REQUIRE(place.block < map.size());
      CHECK(place.offset == filled[place.block]);  // one behind the other, without a gap
      filled[place.block] += block_range(at, size).size();
    }
  }
  for (std::uint64_t block = 0; block < map.size(); ++block) {
    REQUIRE(map.block(block));
    CHECK(map.block(block)->bytes() == filled[block]);
    CHECK(filled[block] <= kBlockBytes);
  }
}
