#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "headpond/io_options.h"

namespace headpond {

enum class Count : std::uint8_t {
  warm_reads,
  warm_bytes,
  cold_reads,
  cold_bytes,
  direct_bytes,
  system_calls,
  ring_entries,
  opens,
  probes,
  retries,
  failures,
};

// The sums behind IoCounters. Each thread adds to one of a few cache lines, so
// that readers on different CPUs do not share them. Safe to call from any thread.
class Counters {
 public:
  void add(Count what, std::uint64_t n = 1) {
    own_line().values[static_cast<std::size_t>(what)].fetch_add(n, std::memory_order_relaxed);
  }
  IoCounters sum() const;

 private:
  static constexpr std::size_t kCounts = static_cast<std::size_t>(Count::failures) + 1;
  struct alignas(64) Line {
    std::array<std::atomic<std::uint64_t>, kCounts> values{};
  };
  Line& own_line();
  std::uint64_t of(Count what) const;

  std::array<Line, 16> lines_;
};

}  // namespace headpond
