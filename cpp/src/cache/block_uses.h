#pragma once

#include <cstdint>
#include <memory>

#include "cache/use_file.h"

namespace headpond {

// What a loader knows of the uses to come of its store's blocks, by their place in the store's
// BlockMap. Safe to call from any thread.
class BlockUses {
 public:
  virtual ~BlockUses() = default;
  // The first use of a block behind what is being read now; kNeverUsed: none is known.
  virtual std::uint64_t next_use(std::uint64_t block) const = 0;
  // The loader's use file; null while it is not there.
  virtual std::shared_ptr<const UseWriter> writer() const = 0;
};

}  // namespace headpond
