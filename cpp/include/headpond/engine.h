#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "headpond/block_cache.h"
#include "headpond/byte_budget.h"
#include "headpond/http_options.h"
#include "headpond/io_options.h"
#include "headpond/log.h"
#include "headpond/store.h"

namespace headpond {

class Scheduler;

struct EngineOptions {
  IoOptions io;
  HttpOptions http;
  CacheOptions cache;        // no folder, or size 0: no cache
  unsigned cpu_threads = 0;  // CPU workers; 0: usable CPUs / ranks_on_node, at least 1
  std::uint64_t memory_bytes =
      0;  // budget of what is not handed out; 0: min(2 GiB, memory / 4) / ranks_on_node
  unsigned ranks_on_node = 1;
  // Of the CPU workers, added to the process's own: a trainer that wakes up from waiting for its
  // accelerator is not to queue behind them.
  int nice = 10;
};

struct EngineStatus {
  IoStatus io;
  HttpStatus http;
  HttpCounters http_counters;
  std::string cache_folder;  // empty: there is none, or it was not needed yet
  std::string cache_reason;  // why there is none
  CacheCounters cache_counters;
  unsigned cpu_threads = 0;
  bool started = false;
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_used = 0;
  std::uint64_t memory_peak = 0;
};

// Owns the threads, reactors, budget and stores that loaders share.
//
// Costs nothing until the first batch is asked for: no thread runs before. Several
// may exist. Safe to call from any thread. In a forked child an engine of the parent
// is dead: `is_ours` is false, and nothing of it may be used or destroyed with effect.
class Engine {
 public:
  static std::shared_ptr<Engine> make(EngineOptions options);
  virtual ~Engine() = default;

  virtual StoreRegistry& stores() = 0;
  virtual ByteBudget& budget() = 0;
  virtual std::shared_ptr<LogQueue> log() = 0;
  // The CPU workers; for prefetchers.
  virtual Scheduler& scheduler() = 0;
  virtual EngineStatus status() const = 0;
  // Of `status` alone, for free.
  virtual HttpCounters http_counters() const = 0;
  virtual CacheCounters cache_counters() const = 0;
  // Was it made by this process (and not by the parent before a fork)?
  virtual bool is_ours() const = 0;
  // Stops every prefetcher, the workers and the stores: within 2 s. Idempotent.
  virtual void close() = 0;
};

}  // namespace headpond
