#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "cache/cache_core.h"
#include "cache/open_cache.h"

namespace headpond {
namespace {

constexpr std::chrono::milliseconds kFirstScan{5};

Error stopped_in_between() {
  return Error(ErrorCode::cancelled, "stopped while its block was fetched");
}

}  // namespace

Result<void> CacheCore::start() {
  auto space =
      Space::open(folder_, claims_, SpaceOptions{options_.size_bytes, options_.floor_bytes});
  if (!space) return std::move(space).error().in("opening the cache " + options_.folder);
  space_ = *std::move(space);
  folder_->on_damaged([this](const BlockKey&, std::uint64_t) { space_->distrust(); });
  eviction_ = std::make_unique<Eviction>(folder_, *space_, uses_);
  waits_ = std::make_unique<FillWaits>(folder_->fill(), [this](const BlockKey& key) {
    Lock lock(mutex_);
    const auto found = fills_.find(key);
    if (found == fills_.end()) return;
    const FillPtr fill = found->second;
    schedule(lock, fill);
  });
  // A folder that is new, or small, is counted at once; blocks are fetched into it only then.
  if (eviction_->wants_rescan()) {
    const auto stop = std::chrono::steady_clock::now() + kFirstScan;
    auto scanned = eviction_->rescan([&] { return std::chrono::steady_clock::now() < stop; });
    if (!scanned) rescan_if_wanted();
  }
  return {};
}

CacheCounters CacheCore::counters() const {
  CacheCounters counters = counts_.read();
  counters.evicted = eviction_->counts().evicted_blocks;
  counters.damaged = folder_->damaged_blocks();
  return counters;
}

void CacheCore::rescan_if_wanted() {
  if (!eviction_->wants_rescan() || rescanning_.exchange(true)) return;
  const bool posted = pool_.post([self = weak_from_this()] {
    const auto cache = self.lock();
    if (cache == nullptr) return;
    // While somebody else holds the cache.
    auto scanned = cache->eviction_->rescan([&] { return cache.use_count() > 1; });
    // The limit may be smaller than it was.
    if (scanned) scanned = cache->eviction_->shrink([&] { return cache.use_count() > 1; });
    if (!scanned && scanned.error().code() != ErrorCode::cancelled) cache->trouble(scanned.error());
    cache->rescanning_ = false;
  });
  if (!posted) rescanning_ = false;
}

// --- published blocks

std::shared_ptr<const PublishedBlock> CacheCore::find(const Block& block) {
  if (auto open = handles_.find(block.key)) return open;
  auto opened = PublishedBlock::open(folder_, block);
  if (!opened) {
    trouble(opened.error());
    return nullptr;
  }
  if (!*opened) return nullptr;
  auto shared = std::make_shared<const PublishedBlock>(std::move(**opened));
  handles_.put(block.key, shared);
  return shared;
}

bool CacheCore::read_now(const BlockKey& key, std::span<const Piece> pieces, Wait wait,
                         const std::function<Block()>& describe) {
  auto block = handles_.find(key);
  if (block == nullptr) {
    block = find(describe());
    if (block == nullptr) return false;
  }
  if (!read_published(*block, pieces, wait)) return false;
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.out.size();
  CacheCounts::add(counts_.hits, pieces.size());
  CacheCounts::add(counts_.hit_bytes, bytes);
  return true;
}

bool CacheCore::read_published(const PublishedBlock& block, std::span<const Piece> pieces,
                               Wait wait) {
  const auto filled = block.read(pieces, wait);
  if (filled) return *filled == pieces.size();
  handles_.drop(block.key());
  if (filled.error().code() != ErrorCode::corrupt_data) {
    trouble(filled.error());
  } else if (log_ != nullptr) {
    log_->push_once(LogLevel::warning, "cache damaged",
                    "cache " + options_.folder + ": block " + block.key().hex() +
                        " failed its check; it is removed and fetched again, as all such are");
  }
  return false;
}

void CacheCore::trouble(const Error& error) {
  CacheCounts::add(counts_.failures);
  health_.failed();
  if (log_ != nullptr)
    log_->push_once(LogLevel::warning, "cache trouble",
                    "cache " + options_.folder + ": " + error.to_string() +
                        "; data are read past it until it works again");
}

// --- the table of fills

void CacheCore::read(BlockRead read) {
  Lock lock(mutex_);
  // Looked at with the lock: what is asked to stop later is found by the sweep that follows.
  if (read.stop.stop_requested()) {
    lock.unlock();
    return read.done(stopped_in_between());
  }
  auto& fill = fills_[read.block->key];
  read.waited = fill != nullptr;
  if (fill == nullptr) fill = std::make_shared<Fill>(read.block);
  fill->waiters.push_back(std::move(read));
  const FillPtr held = fill;
  schedule(lock, held);
}

void CacheCore::schedule(Lock& lock, const FillPtr& fill) {
  fill->again = true;
  if (fill->stepping) return;
  fill->stepping = true;
  if (pool_.post([self = shared_from_this(), fill] { self->step(fill); })) return;
  lock.unlock();
  step(fill);  // no thread can be had: better slow than never
  lock.lock();
}

void CacheCore::leave(Lock& lock, const FillPtr& fill) {
  stop_waiting(fill);
  release_memory(lock, fill);
  const auto found = fills_.find(fill->block->key);
  if (found != fills_.end() && found->second == fill) fills_.erase(found);
}

void CacheCore::release_memory(Lock& lock, const FillPtr& fill) {
  if (!std::exchange(fill->counted, false)) return;
  memory_used_ -= fill->block->bytes();
  --holders_;
  while (!queued_.empty() && take_memory(queued_.front())) {
    const FillPtr next = std::move(queued_.front());
    queued_.pop_front();
    next->phase = Fill::Phase::looking;
    schedule(lock, next);
  }
}

bool CacheCore::take_memory(const FillPtr& fill) {
  if (fill->counted) return true;
  const std::uint64_t bytes = fill->block->bytes();
  if (holders_ >= 2 && memory_used_ + bytes > options_.memory_bytes) return false;
  fill->counted = true;
  memory_used_ += bytes;
  ++holders_;
  return true;
}

void CacheCore::stop_waiting(const FillPtr& fill) {
  if (fill->phase == Fill::Phase::elsewhere) waits_->remove(fill->block->key);
}

// --- stopping

void CacheCore::cancel_stopped() {
  {
    const Lock lock(mutex_);
    if (std::exchange(sweeping_, true)) return;
  }
  if (!pool_.post([self = shared_from_this()] { self->sweep(); })) sweep();
}

void CacheCore::sweep() {
  std::vector<BlockRead> stopped;
  {
    Lock lock(mutex_);
    sweeping_ = false;
    std::vector<FillPtr> fills;
    for (const auto& entry : fills_) fills.push_back(entry.second);
    for (const FillPtr& fill : fills) {
      if (fill->lender && fill->lender->stop.stop_requested()) fill->stop.request_stop();
      auto& waiters = fill->waiters;
      const auto first =
          std::stable_partition(waiters.begin(), waiters.end(),
                                [](const BlockRead& read) { return !read.stop.stop_requested(); });
      if (first == waiters.end()) continue;
      std::move(first, waiters.end(), std::back_inserter(stopped));
      waiters.erase(first, waiters.end());
      if (waiters.empty()) schedule(lock, fill);
    }
  }
  for (BlockRead& read : stopped) read.done(stopped_in_between());
}

// --- opening

namespace {

// The one process-wide object: record locks belong to the process, and closing any descriptor of a
// file drops them, so two caches over one folder would break each other's. A forked child's pid
// is another, so it opens its own.
struct OpenCaches {
  std::mutex mutex;
  std::map<std::pair<CacheFolder::Identity, pid_t>, std::weak_ptr<BlockCache>> caches;
};

OpenCaches& open_caches() {
  static OpenCaches* const open = new OpenCaches;  // outlives every engine's end
  return *open;
}

}  // namespace

Result<std::shared_ptr<BlockCache>> open_block_cache(const CacheOptions& options,
                                                     std::shared_ptr<CacheOps> ops,
                                                     std::shared_ptr<Clock> clock,
                                                     std::shared_ptr<LogQueue> log) {
  auto folder = CacheFolder::open(options.folder, std::move(ops));
  if (!folder) return std::move(folder).error().in("opening the cache " + options.folder);
  OpenCaches& open = open_caches();
  const std::lock_guard lock(open.mutex);
  auto& known = open.caches[std::pair((*folder)->identity(), getpid())];
  if (auto cache = known.lock()) return std::shared_ptr<BlockCache>(std::move(cache));
  auto cache =
      std::make_shared<CacheCore>(options, *std::move(folder), std::move(clock), std::move(log));
  if (auto started = cache->start(); !started) return std::move(started).error();
  known = cache;
  return std::shared_ptr<BlockCache>(std::move(cache));
}

Result<std::shared_ptr<BlockCache>> BlockCache::open(const CacheOptions& options,
                                                     std::shared_ptr<Clock> clock,
                                                     std::shared_ptr<LogQueue> log) {
  return open_block_cache(options, std::make_shared<CacheOps>(), std::move(clock), std::move(log));
}

}  // namespace headpond
