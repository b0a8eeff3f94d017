#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "headpond/object_version.h"
#include "headpond/result.h"

namespace headpond {

// A shard that is being indexed while it arrives from its start. For one thread at a time.
class ShardIndexing {
 public:
  // Fills `out` from `offset`.
  using Read = std::function<Result<void>(std::uint64_t offset, std::span<std::byte> out)>;

  virtual ~ShardIndexing() = default;
  // Goes on as far as the first `available` bytes of the shard allow (the last call: all
  // of them); true when the shard is indexed. One call does a bounded part of the work, so
  // call again while it says false and needed() < available.
  // Errors: corrupt_data, unsupported, naming the member.
  virtual Result<bool> advance(std::uint64_t available) = 0;
  // Bytes before it are not asked for again.
  virtual std::uint64_t needed() const = 0;
};

// The shards of a format whose samples lie shard by shard, and what is known of each.
//
// Their contents may be known from the start, or come late: each shard becomes known once,
// and stays so. Safe from any thread.
class Shards {
 public:
  // A sample by its shard and its place there, beside the numbers 0, 1, ... over all
  // shards, which need the counts of all shards before. Formats with shards take both.
  static constexpr std::uint64_t kByShard = std::uint64_t{1} << 63;
  static constexpr std::uint64_t number(std::uint64_t shard, std::uint64_t row) {
    return kByShard | shard << 32 | row;
  }

  virtual ~Shards() = default;
  virtual std::uint64_t shard_number() const = 0;  // shard i is object i of the manifest
  virtual std::optional<std::uint64_t> count(std::uint64_t shard) const = 0;
  // What a list beside the shards says of one that is not known yet. Where it turns out to be
  // wrong, the shard does not become known, but an error that names both counts.
  virtual std::optional<std::uint64_t> promised(std::uint64_t shard) const = 0;
  // Of the bytes that are indexed; before, as of opening (any if that is not known).
  virtual ObjectVersion version(std::uint64_t shard) const = 0;
  // Makes an unknown shard known. Null: an index that was kept from earlier is of this
  // version, and the shard is known now. `read` must live as long as the indexing.
  virtual Result<std::unique_ptr<ShardIndexing>> index(std::uint64_t shard,
                                                       const ObjectVersion& version,
                                                       ShardIndexing::Read read) const = 0;

  struct Making {
    ObjectVersion version;
    ShardIndexing::Read read;
    // Asked first: an index of this version that was made elsewhere, or none. May be null.
    std::function<std::optional<std::vector<std::byte>>()> shipped;
    std::function<bool()> proceed;  // asked now and then, also while waiting; false: cancelled
  };
  // The same on the calling thread, and once for all processes of a machine: others wait.
  virtual Result<void> make_known(std::uint64_t shard, const Making& making) const = 0;
};

}  // namespace headpond
