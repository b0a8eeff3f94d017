#include "headpond/block_cache.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include "base/task_pool.h"
#include "cache/block_file.h"
#include "cache/block_handles.h"
#include "cache/block_uses.h"
#include "cache/cache_folder.h"
#include "cache/cache_health.h"
#include "cache/eviction.h"
#include "cache/fill.h"
#include "cache/fill_waits.h"
#include "cache/open_cache.h"
#include "cache/space.h"
#include "cache/use_file.h"

namespace headpond {
namespace {

constexpr unsigned kThreadsMax = 4;
constexpr std::chrono::milliseconds kFirstScan{5};
// A block is fetched with one request, unless what is wanted of it is less than this: then that
// comes first, in a request of its own.
constexpr std::uint64_t kWholeFrom = std::uint64_t{1} << 20;

ByteRange range_of(const BlockRead& read) { return {read.offset, read.offset + read.out.size()}; }

Error stopped_in_between() {
  return Error(ErrorCode::cancelled, "stopped while its block was fetched");
}

Error no_room() { return Error(ErrorCode::resource_limit, "the cache has no room for the block"); }

// Are all its bytes among these? Who only wants the block to be kept waits for its publication.
bool is_covered(const BlockRead& read, const RangeSet& here) {
  return !read.out.empty() && here.covers(range_of(read));
}

ByteRange whole_cells(ByteRange range, std::uint64_t bytes) {
  return {range.start / kCellBytes * kCellBytes,
          std::min(bytes, (range.stop + kCellBytes - 1) / kCellBytes * kCellBytes)};
}

// The counters of CacheCounters, each a relaxed atomic.
struct Counts {
  std::atomic<std::uint64_t> hits, hit_bytes, joined, joined_bytes, missed, missed_bytes,
      fetched_bytes, past_bytes, published, stalled, failures;

  CacheCounters read() const {
    const auto of = [](const auto& count) { return count.load(std::memory_order_relaxed); };
    CacheCounters counters;
    counters.hits = of(hits);
    counters.hit_bytes = of(hit_bytes);
    counters.joined = of(joined);
    counters.joined_bytes = of(joined_bytes);
    counters.missed = of(missed);
    counters.missed_bytes = of(missed_bytes);
    counters.fetched_bytes = of(fetched_bytes);
    counters.past_bytes = of(past_bytes);
    counters.published = of(published);
    counters.stalled = of(stalled);
    counters.failures = of(failures);
    return counters;
  }
  static void add(std::atomic<std::uint64_t>& count, std::uint64_t amount = 1) {
    count.fetch_add(amount, std::memory_order_relaxed);
  }
};

class BlockCacheImpl final : public BlockCache,
                             public std::enable_shared_from_this<BlockCacheImpl> {
 public:
  BlockCacheImpl(CacheOptions options, std::shared_ptr<CacheFolder> folder,
                 std::shared_ptr<Clock> clock, std::shared_ptr<LogQueue> log)
      : options_(std::move(options)),
        folder_(std::move(folder)),
        clock_(std::move(clock)),
        log_(std::move(log)),
        health_(*clock_),
        uses_(folder_),
        pool_("hp-cache", kThreadsMax) {}

  Result<void> start();

  bool read_now(const BlockKey& key, std::span<const Piece> pieces, Wait wait,
                const std::function<Block()>& describe) override;
  void read(BlockRead read) override;
  void cancel_stopped() override;
  UseFiles& uses() override { return uses_; }
  CacheCounters counters() const override;
  const CacheOptions& options() const override { return options_; }

 private:
  using FillPtr = std::shared_ptr<Fill>;
  using Lock = std::unique_lock<std::mutex>;

  std::shared_ptr<const PublishedBlock> find(const Block& block);
  bool read_published(const PublishedBlock& block, std::span<const Piece> pieces, Wait wait);
  void trouble(const Error& error);

  void schedule(Lock& lock, const FillPtr& fill);
  void step(const FillPtr& fill);
  void look(const FillPtr& fill);
  void serve(const FillPtr& fill, const PublishedBlock& block);
  void acquire(const FillPtr& fill);
  void wait_elsewhere(const FillPtr& fill, const FillStamp& stamp);
  void stop_waiting(const FillPtr& fill);
  static std::vector<ByteRange> missing_ranges(const Fill& fill, ByteRange wanted);
  static std::vector<ByteRange> missing_objects(const Fill& fill, ByteRange wanted);
  void take_in_whole_cells(Fill& fill);
  void write_arrived(Fill& fill);
  void start_fetch(const FillPtr& fill);
  void fetch(const FillPtr& fill, ByteRange range, const std::shared_ptr<BlockSource>& source);
  void absorb(const FillPtr& fill);
  void absorb_part(Fill& fill, const Fill::Part& part);
  void give_covered(Fill& fill);
  void count_fetched(const BlockRead& read);
  void finish(const FillPtr& fill);
  void publish(Fill& fill);
  void drop_file(Fill& fill);
  void past(const FillPtr& fill);
  void past(BlockRead read);
  void leave(Lock& lock, const FillPtr& fill);
  void release_memory(Lock& lock, const FillPtr& fill);
  bool take_memory(const FillPtr& fill);
  void rescan_if_wanted();
  void sweep();

  const CacheOptions options_;
  const std::shared_ptr<CacheFolder> folder_;
  const std::shared_ptr<Clock> clock_;
  const std::shared_ptr<LogQueue> log_;
  CacheHealth health_;
  Counts counts_{};
  BlockHandles handles_;
  FillClaims claims_;
  UseFiles uses_;
  std::unique_ptr<Space> space_;
  std::unique_ptr<Eviction> eviction_;
  std::atomic<bool> rescanning_ = false;

  std::mutex mutex_;
  std::unordered_map<BlockKey, FillPtr> fills_;
  std::deque<FillPtr> queued_;  // for memory
  std::uint64_t memory_used_ = 0;
  std::size_t holders_ = 0;  // of memory
  bool sweeping_ = false;

  std::unique_ptr<FillWaits> waits_;
  TaskPool pool_;  // last: its tasks use the rest
};

Result<void> BlockCacheImpl::start() {
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

CacheCounters BlockCacheImpl::counters() const {
  CacheCounters counters = counts_.read();
  counters.evicted = eviction_->counts().evicted_blocks;
  counters.damaged = folder_->damaged_blocks();
  return counters;
}

// Counts what is there, in the background.
void BlockCacheImpl::rescan_if_wanted() {
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
// -----------------------------------------------------------------------------

std::shared_ptr<const PublishedBlock> BlockCacheImpl::find(const Block& block) {
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

bool BlockCacheImpl::read_now(const BlockKey& key, std::span<const Piece> pieces, Wait wait,
                              const std::function<Block()>& describe) {
  auto block = handles_.find(key);
  if (block == nullptr) {
    block = find(describe());
    if (block == nullptr) return false;
  }
  if (!read_published(*block, pieces, wait)) return false;
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.out.size();
  Counts::add(counts_.hits, pieces.size());
  Counts::add(counts_.hit_bytes, bytes);
  return true;
}

// False: not in memory (Wait::never), or not to be had from this file.
bool BlockCacheImpl::read_published(const PublishedBlock& block, std::span<const Piece> pieces,
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

void BlockCacheImpl::trouble(const Error& error) {
  Counts::add(counts_.failures);
  health_.failed();
  if (log_ != nullptr)
    log_->push_once(LogLevel::warning, "cache trouble",
                    "cache " + options_.folder + ": " + error.to_string() +
                        "; data are read past it until it works again");
}

// --- the table of fills
// ---------------------------------------------------------------------------

void BlockCacheImpl::read(BlockRead read) {
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

// Has the next step of a fill run: one at a time.
void BlockCacheImpl::schedule(Lock& lock, const FillPtr& fill) {
  fill->again = true;
  if (fill->stepping) return;
  fill->stepping = true;
  if (pool_.post([self = shared_from_this(), fill] { self->step(fill); })) return;
  lock.unlock();
  step(fill);  // no thread can be had: better slow than never
  lock.lock();
}

void BlockCacheImpl::step(const FillPtr& fill) {
  Lock lock(mutex_);
  while (std::exchange(fill->again, false)) {
    const auto phase = fill->phase;
    lock.unlock();
    switch (phase) {
      case Fill::Phase::looking:
        look(fill);
        break;
      case Fill::Phase::queued:
        break;
      case Fill::Phase::elsewhere:
        acquire(fill);
        break;
      case Fill::Phase::fetching:
        absorb(fill);
        break;
    }
    lock.lock();
  }
  fill->stepping = false;
}

// Takes a fill out of the table; who comes later starts another.
void BlockCacheImpl::leave(Lock& lock, const FillPtr& fill) {
  stop_waiting(fill);
  release_memory(lock, fill);
  const auto found = fills_.find(fill->block->key);
  if (found != fills_.end() && found->second == fill) fills_.erase(found);
}

void BlockCacheImpl::release_memory(Lock& lock, const FillPtr& fill) {
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

// With the lock held. The oldest two always fit.
bool BlockCacheImpl::take_memory(const FillPtr& fill) {
  if (fill->counted) return true;
  const std::uint64_t bytes = fill->block->bytes();
  if (holders_ >= 2 && memory_used_ + bytes > options_.memory_bytes) return false;
  fill->counted = true;
  memory_used_ += bytes;
  ++holders_;
  return true;
}

// --- steps of a fill
// ------------------------------------------------------------------------------

void BlockCacheImpl::look(const FillPtr& fill) {
  {
    Lock lock(mutex_);
    if (fill->waiters.empty()) return leave(lock, fill);
  }
  if (const auto block = find(*fill->block)) return serve(fill, *block);
  if (!health_.may_try()) return past(fill);
  {
    Lock lock(mutex_);
    if (!take_memory(fill)) {
      fill->phase = Fill::Phase::queued;
      queued_.push_back(fill);
      return;
    }
  }
  acquire(fill);
}

// Those who wait are given their parts of a published block.
void BlockCacheImpl::serve(const FillPtr& fill, const PublishedBlock& block) {
  for (;;) {
    std::vector<BlockRead> waiters;
    {
      Lock lock(mutex_);
      if (fill->waiters.empty()) return leave(lock, fill);
      waiters.swap(fill->waiters);
    }
    for (auto read = waiters.begin(); read != waiters.end(); ++read) {
      const Piece piece{read->offset, read->out};
      if (piece.out.empty()) {
        read->done({});
        continue;
      }
      if (!read_published(block, {&piece, 1}, Wait::allowed)) {
        Lock lock(mutex_);
        stop_waiting(fill);
        fill->waiters.insert(fill->waiters.begin(), std::make_move_iterator(read),
                             std::make_move_iterator(waiters.end()));
        fill->phase = Fill::Phase::looking;
        fill->again = true;
        return;
      }
      Counts::add(read->waited ? counts_.joined : counts_.hits);
      Counts::add(read->waited ? counts_.joined_bytes : counts_.hit_bytes, read->out.size());
      read->done({});
    }
  }
}

// Becomes the one who fetches the block, or learns who is.
void BlockCacheImpl::acquire(const FillPtr& fill) {
  std::shared_ptr<const BlockUses> uses;
  std::uint64_t place = 0;
  {
    Lock lock(mutex_);
    if (fill->waiters.empty()) return leave(lock, fill);
    uses = fill->waiters.front().uses;
    place = fill->waiters.front().place;
  }
  auto claim = claims_.claim(fill->block->key);
  if (!claim) return past(fill);  // a fill of this block that ends right now
  auto begun = FillFile::begin(folder_, *fill->block, std::move(*claim));
  if (!begun) {
    trouble(begun.error());
    return past(fill);
  }
  if (const auto* busy = std::get_if<FillBusy>(&*begun)) return wait_elsewhere(fill, busy->stamp);
  if (auto* published = std::get_if<PublishedBlock>(&*begun)) {
    const auto shared = std::make_shared<const PublishedBlock>(std::move(*published));
    handles_.put(fill->block->key, shared);
    return serve(fill, *shared);
  }
  auto file = std::move(std::get<std::unique_ptr<FillFile>>(*begun));
  {
    Lock lock(mutex_);
    if (!take_memory(fill)) {  // the file is left to whoever comes next
      stop_waiting(fill);
      fill->phase = Fill::Phase::queued;
      queued_.push_back(fill);
      return;
    }
  }
  const auto own = uses == nullptr ? nullptr : uses->writer();
  auto room = eviction_->make_room(
      disk_bytes(file->layout()),
      {fill->block->key, own.get(), own == nullptr ? kNeverUsed : uses->next_use(place)});
  rescan_if_wanted();
  if (!room) trouble(room.error());
  if (!room || !*room) {
    file->abandon();
    return past(fill);
  }
  fill->room.emplace(std::move(**room));
  fill->file = std::move(file);
  start_fetch(fill);
}

void BlockCacheImpl::wait_elsewhere(const FillPtr& fill, const FillStamp& stamp) {
  const auto now = clock_->now();
  Lock lock(mutex_);
  for (BlockRead& read : fill->waiters) read.waited = true;
  release_memory(lock, fill);
  if (fill->phase != Fill::Phase::elsewhere) {
    fill->phase = Fill::Phase::elsewhere;
    fill->stamp = stamp;
    fill->stamp_since = now;
    if (waits_->add(fill->block->key)) {
      fill->again = true;  // it may have been published before the watch stood
      return;
    }
  } else if (fill->stamp != stamp) {
    fill->stamp = stamp;
    fill->stamp_since = now;
    return;
  } else if (now - fill->stamp_since < options_.stalled) {
    return;
  }
  lock.unlock();
  Counts::add(counts_.stalled);
  past(fill);
}

// With the lock held.
void BlockCacheImpl::stop_waiting(const FillPtr& fill) {
  if (fill->phase == Fill::Phase::elsewhere) waits_->remove(fill->block->key);
}

void BlockCacheImpl::start_fetch(const FillPtr& fill) {
  const std::uint64_t bytes = fill->block->bytes();
  fill->own.reset();
  ByteRange wanted;
  std::shared_ptr<BlockSource> source;
  {
    Lock lock(mutex_);
    auto first = fill->waiters.begin();
    const auto whole = std::find_if(first, fill->waiters.end(), [&](const BlockRead& read) {
      return read.out.size() == bytes;
    });
    if (whole != fill->waiters.end()) first = whole;
    if (first == fill->waiters.end()) {
      drop_file(*fill);
      return leave(lock, fill);
    }
    source = first->source;
    fill->source = source;
    wanted = whole_cells(range_of(*first), bytes);
    if (first == whole) {
      fill->memory = first->out;
      fill->lender.emplace(std::move(*first));
      fill->waiters.erase(first);
    } else {
      fill->own.reset(new (std::nothrow) std::byte[bytes]);
      fill->memory = {fill->own.get(), fill->own == nullptr ? 0 : bytes};
    }
  }
  if (fill->memory.empty()) {  // the system's memory is used up
    drop_file(*fill);
    return past(fill);
  }
  take_in_whole_cells(*fill);
  const auto ranges = fill->block->extents.size() > 1 ? missing_objects(*fill, wanted)
                                                      : missing_ranges(*fill, wanted);
  fill->parts_in_flight = ranges.size();
  {
    Lock lock(mutex_);
    stop_waiting(fill);
    fill->phase = Fill::Phase::fetching;
    fill->again = true;
  }
  for (const ByteRange& range : ranges) fetch(fill, range, source);
}

// Of one object: what is wanted first, in a request of its own if it is small.
std::vector<ByteRange> BlockCacheImpl::missing_ranges(const Fill& fill, ByteRange wanted) {
  const std::uint64_t bytes = fill.block->bytes();
  if (wanted.size() >= kWholeFrom) wanted = {0, bytes};
  auto ranges = fill.here.missing(wanted);
  for (const ByteRange& side : {ByteRange{0, wanted.start}, ByteRange{wanted.stop, bytes}}) {
    for (const ByteRange& range : fill.here.missing(side)) ranges.push_back(range);
  }
  return ranges;
}

// Of several objects: each as a whole, those that are wanted first.
std::vector<ByteRange> BlockCacheImpl::missing_objects(const Fill& fill, ByteRange wanted) {
  std::vector<ByteRange> ranges;
  std::uint64_t start = 0;
  for (const BlockExtent& extent : fill.block->extents) {
    const ByteRange range{start, start + extent.range.size()};
    start = range.stop;
    if (!fill.here.covers(range)) ranges.push_back(range);
  }
  std::stable_partition(ranges.begin(), ranges.end(), [&](const ByteRange& range) {
    return range.start < wanted.stop && wanted.start < range.stop;
  });
  return ranges;
}

// What a predecessor left.
void BlockCacheImpl::take_in_whole_cells(Fill& fill) {
  RangeSet missing;
  for (const ByteRange& range : fill.file->missing()) missing.add(range);
  for (const ByteRange& range : missing.missing({0, fill.block->bytes()})) {
    const Piece piece{range.start, fill.memory.subspan(range.start, range.size())};
    if (!fill.file->read({&piece, 1})) continue;
    fill.here.add(range);
    fill.written.add(range);
  }
}

void BlockCacheImpl::fetch(const FillPtr& fill, ByteRange range,
                           const std::shared_ptr<BlockSource>& source) {
  source->fetch(*fill->block, range.start, fill->memory.subspan(range.start, range.size()),
                fill->stop.get_token(),
                [self = shared_from_this(), fill, range](Result<void> outcome) {
                  Lock lock(self->mutex_);
                  fill->arrived.push_back({range, std::move(outcome)});
                  self->schedule(lock, fill);
                });
}

// Takes in what has arrived, and gives those who wait what is theirs.
void BlockCacheImpl::absorb(const FillPtr& fill) {
  std::vector<Fill::Part> arrived;
  {
    const Lock lock(mutex_);
    arrived.swap(fill->arrived);
  }
  for (const Fill::Part& part : arrived) absorb_part(*fill, part);
  give_covered(*fill);
  write_arrived(*fill);
  if (fill->parts_in_flight == 0) finish(fill);
}

void BlockCacheImpl::absorb_part(Fill& fill, const Fill::Part& part) {
  --fill.parts_in_flight;
  if (!part.outcome) {
    if (!fill.error) fill.error = part.outcome.error();
    return;
  }
  Counts::add(fill.file ? counts_.fetched_bytes : counts_.past_bytes, part.range.size());
  fill.here.add(part.range);
}

// The whole cells that have arrived since the last time.
void BlockCacheImpl::write_arrived(Fill& fill) {
  const std::uint64_t bytes = fill.block->bytes();
  for (const ByteRange& here : fill.here.ranges()) {
    const ByteRange cells{(here.start + kCellBytes - 1) / kCellBytes * kCellBytes,
                          here.stop == bytes ? bytes : here.stop / kCellBytes * kCellBytes};
    for (const ByteRange& range : fill.written.missing(cells)) {
      if (!fill.file) return;
      auto written = fill.file->write(range.start, fill.memory.subspan(range.start, range.size()));
      if (!written) {
        trouble(written.error());
        return drop_file(fill);
      }
      fill.written.add(range);
    }
  }
}

void BlockCacheImpl::give_covered(Fill& fill) {
  std::vector<BlockRead> covered;
  {
    const Lock lock(mutex_);
    auto& waiters = fill.waiters;
    const auto first =
        std::stable_partition(waiters.begin(), waiters.end(),
                              [&](const BlockRead& read) { return !is_covered(read, fill.here); });
    covered.assign(std::make_move_iterator(first), std::make_move_iterator(waiters.end()));
    waiters.erase(first, waiters.end());
  }
  for (BlockRead& read : covered) {
    std::memcpy(read.out.data(), fill.memory.data() + read.offset, read.out.size());
    count_fetched(read);
    read.done({});
  }
}

void BlockCacheImpl::count_fetched(const BlockRead& read) {
  Counts::add(read.waited ? counts_.joined : counts_.missed);
  Counts::add(read.waited ? counts_.joined_bytes : counts_.missed_bytes, read.out.size());
}

// Everything that was asked for has been answered.
void BlockCacheImpl::finish(const FillPtr& fill) {
  const bool whole = fill->here.covers({0, fill->block->bytes()});
  if (whole && fill->file) publish(*fill);
  drop_file(*fill);
  std::vector<BlockRead> left;
  for (;;) {
    give_covered(*fill);
    Lock lock(mutex_);
    const bool more =
        std::any_of(fill->waiters.begin(), fill->waiters.end(),
                    [&](const BlockRead& read) { return is_covered(read, fill->here); });
    if (more) continue;  // they came meanwhile
    left.swap(fill->waiters);
    if (fill->lender) left.push_back(*std::exchange(fill->lender, std::nullopt));
    leave(lock, fill);
    break;
  }
  // A fetch that was stopped, or whose store was closed, says nothing about others' sources.
  const bool stopped = fill->error && (fill->error->code() == ErrorCode::cancelled ||
                                       fill->error->code() == ErrorCode::closed);
  for (BlockRead& waiting : left) {
    if (waiting.out.empty() && !fill->error) {
      waiting.done(fill->kept ? Result<void>() : no_room());
    } else if (whole) {  // the lender
      count_fetched(waiting);
      waiting.done({});
    } else if (stopped && waiting.source != fill->source && !waiting.stop.stop_requested()) {
      read(std::move(waiting));
    } else {
      waiting.done(Error(*fill->error));
    }
  }
}

void BlockCacheImpl::publish(Fill& fill) {
  std::optional<Publication> publication;
  const auto published = fill.file->publish([&] {
    publication.emplace(space_->publish(std::move(*fill.room), fill.block->key));
    fill.room.reset();
  });
  if (published && *published) {
    publication->renamed();
    fill.kept = true;
    health_.succeeded();
    Counts::add(counts_.published);
  } else if (!published) {
    trouble(published.error());
    fill.file->abandon();
  }  // else somebody else was faster, and the file is gone
  fill.file.reset();
}

// What was not published is removed, and then its room returns.
void BlockCacheImpl::drop_file(Fill& fill) {
  if (fill.file) fill.file->abandon();
  fill.file.reset();
  fill.room.reset();
}

// --- past the cache
// -------------------------------------------------------------------------------

void BlockCacheImpl::past(const FillPtr& fill) {
  std::vector<BlockRead> waiters;
  {
    Lock lock(mutex_);
    waiters.swap(fill->waiters);
    leave(lock, fill);
  }
  for (BlockRead& read : waiters) past(std::move(read));
}

void BlockCacheImpl::past(BlockRead read) {
  if (read.out.empty()) return read.done(no_room());
  auto held = std::make_shared<BlockRead>(std::move(read));
  held->source->fetch(*held->block, held->offset, held->out, held->stop,
                      [self = shared_from_this(), held](Result<void> outcome) {
                        if (outcome) Counts::add(self->counts_.past_bytes, held->out.size());
                        held->done(std::move(outcome));
                      });
}

// --- stopping
// -------------------------------------------------------------------------------------

void BlockCacheImpl::cancel_stopped() {
  {
    const Lock lock(mutex_);
    if (std::exchange(sweeping_, true)) return;
  }
  if (!pool_.post([self = shared_from_this()] { self->sweep(); })) sweep();
}

void BlockCacheImpl::sweep() {
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
  auto cache = std::make_shared<BlockCacheImpl>(options, *std::move(folder), std::move(clock),
                                                std::move(log));
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
