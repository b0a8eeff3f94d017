#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "cache/block_map.h"
#include "cache/block_uses.h"
#include "headpond/block_cache.h"
#include "headpond/store.h"
#include "headpond/uri.h"
#include "io/in_flight.h"

namespace headpond {

// A Store around a remote one, which reads through the node's cache.
//
// Objects are cut into blocks as BlockMap says; small ones share a block with their neighbours
// where the list is known that they belong to. Only reads that say which version they expect, with
// an ETag or a time in it, go through the cache. The others, stats and lists go to the store
// itself.
class CachedStore final : public Store {
 public:
  // `blocks`: of the objects that will be read, as far as those are known; may be null.
  CachedStore(std::shared_ptr<Store> inner, std::shared_ptr<BlockCache> cache, const Uri& root,
              std::shared_ptr<const BlockMap> blocks);
  ~CachedStore() override;

  void read(std::span<ReadRequest> requests) override;
  void stat(std::string object, std::function<void(Result<ObjectInfo>)> done) override;
  void list(ListRequest request) override;
  Result<std::size_t> read_now(std::string_view object, const ObjectVersion& expected,
                               std::span<const Piece> pieces, Wait wait) override;
  bool is_remote() const override;
  std::string describe() const override;
  // Ends what was read through this one; the store below stays open.
  void close() override;

  // Has a block of the map kept in the cache. `done` runs exactly once: resource_limit when there
  // is no room, unsupported when its objects have no version to keep them by, else as of a read.
  void keep(std::uint64_t block, const StopToken& stop, std::function<void(Result<void>)> done);

  // What is known of the uses to come, from now on and as long as its owner keeps it.
  void follow(std::weak_ptr<const BlockUses> uses);
  // Null: the objects are not known.
  const std::shared_ptr<const BlockMap>& map() const { return blocks_; }
  const std::shared_ptr<BlockCache>& cache() const;

 private:
  struct Shared;
  struct Request;
  class Source;

  std::optional<BlockMap::Place> bundle_of(std::string_view object,
                                           const ObjectVersion& version) const;
  Error closed(std::string_view object) const;
  std::shared_ptr<BlockSource> source_of(std::uint64_t block) const;
  void read_blocks(ReadRequest asked, std::span<std::byte> out);
  bool read_bundle_now(const BlockMap::Place& place, std::span<const Piece> pieces, Wait wait);
  bool read_block_now(std::string_view object, const ObjectVersion& version, const Digest& digest,
                      ByteRange block, std::span<const Piece> parts, Wait wait);

  const std::shared_ptr<Shared> shared_;
  const std::string prefix_;  // of every identity
  const std::shared_ptr<const BlockMap> blocks_;
  std::mutex following_;
  std::weak_ptr<const BlockUses> uses_;
};

}  // namespace headpond
