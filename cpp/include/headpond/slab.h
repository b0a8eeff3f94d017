#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "headpond/result.h"

namespace headpond {

// The memory of one batch, one part per field. Parts are 64-byte aligned.
// A resource: the last owner gives it back to its pool, or lets it go.
class Slab {
 public:
  virtual ~Slab() = default;
  virtual std::span<std::byte> part(std::size_t field) = 0;
};

// Makes the memory of batches: `part_bytes` of each field. Safe from any thread.
class SlabAllocator {
 public:
  virtual ~SlabAllocator() = default;
  // Errors: resource_limit.
  virtual Result<std::shared_ptr<Slab>> allocate(std::span<const std::uint64_t> part_bytes) = 0;
};

struct SlabStatistics {
  std::uint64_t allocated = 0;  // slabs made from the operating system
  std::uint64_t reused = 0;
  std::uint64_t bytes = 0;  // mapped now
};

// Reused memory: 2 MiB aligned regions with huge-page advice, touched once. A slab
// whose parts are at least as large as asked serves again when its last owner lets
// go. Slabs outlive the pool; then they are unmapped. Safe from any thread.
class SlabPool final : public SlabAllocator, public std::enable_shared_from_this<SlabPool> {
 public:
  static std::shared_ptr<SlabPool> make();
  ~SlabPool() override;
  Result<std::shared_ptr<Slab>> allocate(std::span<const std::uint64_t> part_bytes) override;
  SlabStatistics statistics() const;
  // Unmaps what is free.
  void trim();

 private:
  SlabPool();
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace headpond
