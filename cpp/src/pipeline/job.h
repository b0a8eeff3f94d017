#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "headpond/byte_budget.h"
#include "headpond/format.h"
#include "headpond/prefetcher.h"
#include "headpond/sampler.h"
#include "headpond/slab.h"
#include "headpond/steps.h"

namespace headpond {

// A record that comes from storage into a buffer, to be decoded or copied.
struct Arriving {
  std::uint32_t field = 0;  // of the recipe
  std::shared_ptr<Slab> buffer;
  std::uint64_t offset = 0;  // in the buffer
  std::uint64_t size = 0;
};

// A row some of whose records come from storage.
struct ColdRow {
  std::atomic<std::uint32_t> pending{0};  // reads that have not finished
  std::atomic<bool> failed{false};
  std::vector<Arriving> arriving;  // written before the reads start
};

struct RowError {
  std::uint32_t row = 0;
  std::uint32_t field = 0;  // of the recipe
  Error error;
};

// What became of a batch, ready to be handed out.
struct Finished {
  Batch batch;
  std::vector<SampleError> errors;  // of rows that were skipped or replaced
  std::uint64_t valid = 0;
  std::uint64_t padded = 0;
};

// A batch in the making.
//
// Written by the planner, then row by row by whoever claimed the row; `remaining`
// counts rows that are not done, and whoever brings it to zero finishes the batch.
struct Job {
  // Where it stands in the order.
  std::uint64_t ticket = 0;
  std::uint64_t run = 0;  // the prefetcher's seek that it belongs to
  std::uint64_t epoch = 0;
  Steps steps;  // its n is the epoch's size where the step reaches it
  Steps::Step step;
  bool last = false;                              // of this rank's epoch, as far as that is known
  Sampler::GroupPlace group;                      // that holds the position behind the step
  std::vector<std::shared_ptr<const void>> held;  // memory that its rows are copied from

  // The plan: samples of the rows, extents per stored field and row, sizes.
  std::uint32_t rows = 0;
  std::vector<std::uint64_t> samples;
  std::vector<Extent> extents;       // [stored field * rows + row]
  std::vector<std::uint64_t> slots;  // varying fields: [varying * (rows + 1) + row], byte offsets
  std::vector<std::uint64_t> part_bytes;
  std::uint64_t record_bytes = 0;  // of records that may wait in buffers
  std::uint32_t chunk_rows = 1;    // rows claimed at a time
  ByteBudget::Credit credit;
  std::uint64_t bytes = 0;  // that the credit stands for

  std::shared_ptr<Slab> slab;          // none until memory is there
  std::vector<std::byte*> parts;       // its parts' addresses
  std::vector<std::uint64_t> lengths;  // varying fields: bytes written, [varying * rows + row]

  // Progress.
  std::uint32_t next_row = 0;  // first unclaimed row; under the prefetcher's lock
  std::atomic<std::uint32_t> remaining{0};
  std::atomic<std::uint32_t> reads_in_flight{0};
  std::optional<Finished> finished;  // under the prefetcher's lock
  std::vector<std::unique_ptr<ColdRow>>
      cold;                            // empty where nothing can be cold; each by its worker
  std::vector<std::uint32_t> arrived;  // see JobQueue; under the prefetcher's lock

  mutable std::mutex mutex;            // of the next three
  std::vector<std::uint32_t> reading;  // a row of every read planned
  std::vector<RowError> errors;
  bool errors_lost = false;  // there was no memory to note one

  // Counters, added to once per chunk.
  std::atomic<std::uint64_t> bytes_memory{0};
  std::atomic<std::uint64_t> bytes_storage{0};
  std::atomic<std::uint64_t> read_ns{0};
  std::atomic<std::uint64_t> decode_ns{0};

  // As new, with the memory of its lists.
  void reset() {
    slab.reset();
    held.clear();
    record_bytes = 0;
    next_row = 0;
    finished.reset();
    cold.clear();
    arrived.clear();
    reading.clear();
    errors.clear();
    errors_lost = false;
    for (auto* counter : {&bytes_memory, &bytes_storage, &read_ns, &decode_ns}) counter->store(0);
  }

  // Also on threads that have nobody to tell when memory is short.
  void fail(std::uint32_t row, std::uint32_t field, const Error& error) noexcept {
    const std::lock_guard lock(mutex);
    try {
      errors.push_back({row, field, error});
    } catch (const std::bad_alloc&) {
      errors_lost = true;
    }
  }
};

}  // namespace headpond
