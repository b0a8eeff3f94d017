#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headpond/block.h"
#include "headpond/object_list.h"

namespace headpond {

// How objects are cut into blocks.
inline constexpr std::uint64_t kBlockBytes = std::uint64_t{4} << 20;
// Smaller objects share a block with their neighbours.
inline constexpr std::uint64_t kBundledBelowBytes = std::uint64_t{256} << 10;

// Can a version tell tomorrow whether the bytes are still those of the object? A size alone cannot.
bool is_cacheable(const ObjectVersion& version);

// The aligned range of a large object that holds `offset`.
ByteRange block_range(std::uint64_t offset, std::uint64_t object_bytes);

// The blocks of a list of objects: ranges of the large ones, runs of small ones up to kBlockBytes.
//
// Where a run ends follows from the list alone, so that all who read one list share blocks.
// What is kept is small and per block, nothing per object. Immutable; safe from any thread.
class BlockMap {
 public:
  // `prefix`: what makes an object's name its identity. Costs nothing yet: the first question
  // about blocks looks at the size of every object.
  BlockMap(std::shared_ptr<const ObjectList> objects, std::string prefix);

  std::uint64_t size() const { return cut().first_objects.size(); }

  struct Place {
    std::uint64_t block = 0;
    std::uint64_t offset = 0;  // in the block's payload
  };
  // Of a byte of an object: `offset` is less than the object's size.
  Place place(std::uint64_t object, std::uint64_t offset) const;

  // The objects that a block holds, [first, stop): more than one only in a run of small ones.
  struct Objects {
    std::uint64_t first = 0;
    std::uint64_t stop = 0;
  };
  Objects objects(std::uint64_t block) const;

  // nullopt: one of its objects has a version that is not cacheable. A key is made once.
  std::optional<Block> block(std::uint64_t index) const;
  std::optional<BlockKey> key(std::uint64_t index) const;

  const ObjectList& list() const { return *objects_; }

 private:
  struct MadeKey {
    enum class State : std::uint8_t { unknown, none, known };
    std::atomic<State> state = State::unknown;  // release: who sees `known` sees the key
    BlockKey key;
  };
  struct Cut {
    std::vector<std::uint64_t> first_objects;  // by block; the same for the ranges of a large one
    std::vector<MadeKey> keys;                 // by block; made when they are asked for
  };

  Cut& cut() const;
  std::optional<std::vector<BlockExtent>> extents(std::uint64_t block) const;
  bool is_small(std::uint64_t object) const;

  const std::shared_ptr<const ObjectList> objects_;
  const std::string prefix_;

  mutable std::once_flag cut_once_;
  mutable Cut cut_;
  mutable std::mutex making_;
};

// prefix + name, without the parameters of a signature.
std::string object_identity(std::string_view prefix, std::string_view name);

}  // namespace headpond
