#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headpond/field.h"
#include "headpond/shards.h"

namespace headpond {

// Where the bytes of one field of one sample lie, or its value.
struct Extent {
  static constexpr std::uint32_t kValue = 0xFFFFFFFF;    // no bytes: `offset` is the int64 value
  static constexpr std::uint32_t kMissing = 0xFFFFFFFE;  // the sample has no such field

  std::uint32_t object = kMissing;  // index in the dataset's manifest
  std::uint64_t offset = 0;
  std::uint64_t size = 0;

  // Does it lie in an object? (Neither a value nor missing.)
  bool is_stored() const { return object < kMissing; }
};

// Where records lie in objects and how their fields are split: sample number to
// ranges. A pure function of what was known at opening (and of shards that became known
// since); does no I/O after it. Safe to call from any thread.
class Format {
 public:
  static constexpr std::uint64_t kUnknownSize = ~std::uint64_t{0};

  virtual ~Format() = default;

  // Samples; kUnknownSize while the count of a shard is not known.
  virtual std::uint64_t size() const = 0;
  virtual std::span<const Field> fields() const = 0;

  // The extents of field number `field` for many samples (each < size());
  // `out` is as long as `samples`. A call per batch, so its cost per sample counts.
  virtual void locate(std::span<const std::uint64_t> samples, std::size_t field,
                      std::span<Extent> out) const = 0;

  // The sample's name in the store: path, member key, or "name:row".
  virtual std::string key(std::uint64_t sample) const = 0;

  // Samples of each shard in dataset order, for shuffle mode "window"; samples
  // are numbered shard by shard. One number where objects are not shards; none while a
  // count is not known.
  virtual std::vector<std::uint64_t> shard_counts() const = 0;

  // Where samples lie in shards that are read as a whole; else null.
  virtual const Shards* shards() const { return nullptr; }
  // What stands for a sample in the random numbers of its augmentation: the same whether
  // its number over all shards is known or not.
  virtual std::uint64_t random_key(std::uint64_t sample) const { return sample; }
};

}  // namespace headpond
