#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headpond {

// What a consumer was waiting for when no batch was ready.
struct WaitedFor {
  double first_batch_s = 0;  // until the first batch of the loader: start-up, apart from the rest
  double reading_s = 0;      // bytes on their way from storage
  double cpu_s = 0;          // rows being read from memory, decoded, copied
  double memory_s =
      0;  // the budget or the prefetch limit was used up by batches not yet handed out
  double total_s() const { return reading_s + cpu_s + memory_s; }
};

struct SampleError {
  std::optional<std::uint64_t> sample;  // none: its number is not known yet, only its key
  std::string key;
  std::string uri;
  std::uint64_t start = 0, stop = 0;
  std::string reason;
};

// Counts since the loader was made. A value; counters are kept per thread and summed here.
struct LoaderStatistics {
  std::uint64_t batches = 0;  // handed out
  std::uint64_t samples = 0;  // valid rows handed out
  std::uint64_t padded = 0;   // rows that were filled from the epoch's start
  std::uint64_t skipped = 0;
  std::uint64_t replaced = 0;
  double elapsed_s = 0;  // from the first request to the last batch handed out
  WaitedFor waited;
  std::uint64_t bytes_memory = 0;   // copied from arrays in memory or the page cache
  std::uint64_t bytes_storage = 0;  // read by reactors or the pread pool
  std::uint64_t bytes_dropped = 0;  // of them: of shards that memory had no room for, read again
  std::uint64_t bytes_batch = 0;    // handed out
  double read_cpu_s = 0;            // time of workers in reads (wall of the call)
  double decode_cpu_s = 0;
  std::uint64_t slabs_allocated = 0;
  std::uint64_t slabs_reused = 0;
  std::uint64_t scratch_allocations = 0;
  std::uint64_t minor_faults = 0;  // of the whole process, while the loader ran
  std::uint64_t major_faults = 0;
  std::vector<SampleError> errors;  // skipped and replaced samples of this epoch
};

}  // namespace headpond
