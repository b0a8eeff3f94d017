#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace headpond {

// Remembers where data were found cold, so that a cold run does not pay a probe
// (preadv2 with RWF_NOWAIT, about 60 us when it misses) per file, and a warm run
// never goes to the reactor.
//
// What is remembered belongs to a *spot*: 8 MiB of a large file, or the folder of
// small files. After the k-th cold answer in a row the next min(2^k, 64) - 1
// questions about the spot are answered "cold" unasked, then one probes again; one
// warm answer forgets all. A spot without answers of its own follows its parent:
// the file, or the store. So a fully cold run probes about once per 64 reads, and
// data that became warm are noticed after at most 63 more reads of their spot.
//
// A fixed table of counters indexed by hash: no locks, no growth. Spots that share
// a counter only share the guess, which costs time and never bytes.
// Safe to call from any thread.
class ColdMap {
 public:
  static constexpr std::uint64_t kRegionBytes = 8u << 20;

  struct Spot {
    std::uint32_t own = 0;
    std::uint32_t parent = 0;
  };
  static Spot region(std::uint64_t file_identity, std::uint64_t offset);
  // The folder part of `name` within a store.
  static Spot folder(std::uint32_t root, std::string_view name);

  ColdMap();

  // Is a probe worth it? False: take it as cold.
  bool should_probe(Spot spot);
  void was_cold(Spot spot);
  void was_warm(Spot spot);

 private:
  static constexpr std::uint32_t kSlots = 1u << 15;
  static constexpr std::uint32_t kSkipMax = 64;
  // Low half: questions still to be answered unasked. High half: 0 unknown, 1 warm,
  // 1 + k after k cold answers in a row.
  using Slot = std::atomic<std::uint32_t>;
  static void note_cold(Slot& slot);

  std::unique_ptr<Slot[]> slots_;
};

}  // namespace headpond
