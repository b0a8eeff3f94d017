#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cache/block_file.h"
#include "cache/cache_folder.h"
#include "cache/fill_file.h"
#include "cache/tapped_ops.h"
#include "headpond/block.h"
#include "support/bytes.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace headpond {

// The real calls, with answers that a test may alter, and a count of what is open.
class FaultyCacheOps final : public TappedCacheOps {
 public:
  // Asked before each call but close with its name and its number from 0 on: 0 lets it through,
  // -errno is answered instead.
  std::function<int(std::string_view call, int number)> fault;
  int calls = 0;
  std::set<int> open_fds;
  // Bytes that one pwrite or preadv takes at most.
  std::size_t at_once = ~std::size_t{0};

  ssize_t preadv(int fd, const struct iovec* parts, int count, std::uint64_t offset,
                 int flags) override {
    if (at_once == ~std::size_t{0}) return TappedCacheOps::preadv(fd, parts, count, offset, flags);
    struct iovec one = parts[0];
    one.iov_len = std::min(one.iov_len, at_once);
    return TappedCacheOps::preadv(fd, &one, 1, offset, flags);
  }
  ssize_t pwrite(int fd, const std::byte* bytes, std::size_t size, std::uint64_t offset) override {
    return TappedCacheOps::pwrite(fd, bytes, std::min(size, at_once), offset);
  }

 protected:
  int tap(std::string_view call) override {
    if (call == "close") return 0;
    const int number = calls++;
    return fault ? fault(call, number) : 0;
  }
  void was_opened(int fd) override { open_fds.insert(fd); }
  void closed(int fd) override { open_fds.erase(fd); }
};

// A block of `bytes` bytes at the start of an object.
inline Block test_block(std::uint64_t bytes, const std::string& name = "a",
                        std::uint64_t start = 0) {
  ObjectVersion version;
  version.size = start + bytes;
  version.etag = "\"v1\"";
  return make_block({{"http://origin/" + name, version, {start, start + bytes}}});
}

// What the block of this name holds: other bytes for each name.
inline Bytes payload_of(const Block& block) {
  return pattern(block.bytes(), block.key.digest.low | 1);
}

// How much of a test is run, from the environment.
inline std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct TestCache {
  TempDir temp = TempDir::in_memory();
  std::shared_ptr<FaultyCacheOps> ops = std::make_shared<FaultyCacheOps>();
  std::shared_ptr<CacheFolder> folder = *CacheFolder::open(temp.path("cache"), ops);
  FillClaims claims{};

  std::string root() const { return temp.path("cache"); }
  std::string block_path(const BlockKey& key) const {
    const std::string hex = key.hex();
    return root() + "/v1/blocks/" + hex.substr(0, 2) + "/" + hex.substr(2, 2) + "/" + hex;
  }
  std::string fill_path(const BlockKey& key) const { return root() + "/v1/fill/" + key.hex(); }

  Result<FillBegin> begin(const Block& block) {
    return FillFile::begin(folder, block, *claims.claim(block.key));
  }
  std::unique_ptr<FillFile> fill(const Block& block) {
    auto begun = begin(block);
    REQUIRE(begun);
    REQUIRE(std::holds_alternative<std::unique_ptr<FillFile>>(*begun));
    return std::get<std::unique_ptr<FillFile>>(*std::move(begun));
  }
  void put(const Block& block) {
    const auto file = fill(block);
    REQUIRE(file->write(0, payload_of(block)));
    REQUIRE(*file->publish(nullptr));
  }
  std::optional<PublishedBlock> open(const Block& block) {
    auto opened = PublishedBlock::open(folder, block);
    REQUIRE(opened);
    return *std::move(opened);
  }
  // The bytes of the block as a reader gets them; nullopt: a miss, however it shows.
  std::optional<Bytes> get(const Block& block) const {
    const auto opened = PublishedBlock::open(folder, block);
    if (!opened || !*opened) return std::nullopt;
    Bytes bytes(block.bytes());
    const Piece piece{0, bytes};
    const auto read = (*opened)->read({&piece, 1}, Wait::allowed);
    if (!read || *read != 1) return std::nullopt;
    return bytes;
  }
};

inline Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return bytes_of(std::string(std::istreambuf_iterator<char>(file), {}));
}

inline void write_file(const std::string& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("write " + path);
}

}  // namespace headpond
