#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "cache/block_uses.h"
#include "cache/cache_core.h"

namespace headpond {
namespace {

// A block is fetched with one request, unless what is wanted of it is less than this: then that
// comes first, in a request of its own.
constexpr std::uint64_t kWholeFrom = std::uint64_t{1} << 20;
constexpr std::chrono::seconds kHandlesUnused{1};

ByteRange range_of(const BlockRead& read) { return {read.offset, read.offset + read.out.size()}; }

Error no_room() { return Error(ErrorCode::resource_limit, "the cache has no room for the block"); }

// Are all its bytes among these? Who only wants the block to be kept waits for its publication.
bool is_covered(const BlockRead& read, const RangeSet& here) {
  return !read.out.empty() && here.covers(range_of(read));
}

ByteRange cells_around(ByteRange range, std::uint64_t bytes) {
  return {range.start / kCellBytes * kCellBytes, std::min(bytes, whole_cells(range.stop))};
}

// Of one object: what is wanted first, in a request of its own if it is small.
std::vector<ByteRange> missing_ranges(const Fill& fill, ByteRange wanted) {
  const std::uint64_t bytes = fill.block->bytes();
  if (wanted.size() >= kWholeFrom) wanted = {0, bytes};
  auto ranges = fill.here.missing(wanted);
  for (const ByteRange& side : {ByteRange{0, wanted.start}, ByteRange{wanted.stop, bytes}}) {
    for (const ByteRange& range : fill.here.missing(side)) ranges.push_back(range);
  }
  return ranges;
}

// Of several objects: each as a whole, those that are wanted first.
std::vector<ByteRange> missing_objects(const Fill& fill, ByteRange wanted) {
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

}  // namespace

void CacheCore::step(const FillPtr& fill) {
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

void CacheCore::look(const FillPtr& fill) {
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
void CacheCore::serve(const FillPtr& fill, const PublishedBlock& block) {
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
      CacheCounts::add(read->waited ? counts_.joined : counts_.hits);
      CacheCounts::add(read->waited ? counts_.joined_bytes : counts_.hit_bytes, read->out.size());
      read->done({});
    }
  }
}

// Becomes the one who fetches the block, or learns who is.
void CacheCore::acquire(const FillPtr& fill) {
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
  close_unused_handles();
  if (!room) trouble(room.error());
  if (!room || !*room) {
    file->abandon();
    return past(fill);
  }
  fill->room.emplace(std::move(**room));
  fill->file = std::move(file);
  start_fetch(fill);
}

// Blocks that are evicted give their space back when the last descriptor is closed.
void CacheCore::close_unused_handles() {
  const auto now = clock_->now();
  {
    const std::lock_guard lock(mutex_);
    if (now - handles_looked_ < kHandlesUnused) return;
    handles_looked_ = now;
  }
  handles_.drop_unused();
}

void CacheCore::wait_elsewhere(const FillPtr& fill, const FillStamp& stamp) {
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
  CacheCounts::add(counts_.stalled);
  past(fill);
}

void CacheCore::start_fetch(const FillPtr& fill) {
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
    wanted = cells_around(range_of(*first), bytes);
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

// What a predecessor left.
void CacheCore::take_in_whole_cells(Fill& fill) {
  RangeSet missing;
  for (const ByteRange& range : fill.file->missing()) missing.add(range);
  for (const ByteRange& range : missing.missing({0, fill.block->bytes()})) {
    const Piece piece{range.start, fill.memory.subspan(range.start, range.size())};
    if (!fill.file->read({&piece, 1})) continue;
    fill.here.add(range);
    fill.written.add(range);
  }
}

void CacheCore::fetch(const FillPtr& fill, ByteRange range,
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
void CacheCore::absorb(const FillPtr& fill) {
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

void CacheCore::absorb_part(Fill& fill, const Fill::Part& part) {
  --fill.parts_in_flight;
  if (!part.outcome) {
    if (!fill.error) fill.error = part.outcome.error();
    return;
  }
  CacheCounts::add(fill.file ? counts_.fetched_bytes : counts_.past_bytes, part.range.size());
  fill.here.add(part.range);
}

// The whole cells that have arrived since the last time.
void CacheCore::write_arrived(Fill& fill) {
  const std::uint64_t bytes = fill.block->bytes();
  for (const ByteRange& here : fill.here.ranges()) {
    const ByteRange cells{whole_cells(here.start),
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

void CacheCore::give_covered(Fill& fill) {
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

void CacheCore::count_fetched(const BlockRead& read) {
  CacheCounts::add(read.waited ? counts_.joined : counts_.missed);
  CacheCounts::add(read.waited ? counts_.joined_bytes : counts_.missed_bytes, read.out.size());
}

// Everything that was asked for has been answered.
void CacheCore::finish(const FillPtr& fill) {
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

void CacheCore::publish(Fill& fill) {
  std::optional<Publication> publication;
  const auto published = fill.file->publish([&] {
    publication.emplace(space_->publish(std::move(*fill.room), fill.block->key));
    fill.room.reset();
  });
  if (published && *published) {
    publication->renamed();
    fill.kept = true;
    health_.succeeded();
    CacheCounts::add(counts_.published);
  } else if (!published) {
    trouble(published.error());
    fill.file->abandon();
  }  // else somebody else was faster, and the file is gone
  fill.file.reset();
}

// What was not published is removed, and then its room returns.
void CacheCore::drop_file(Fill& fill) {
  if (fill.file) fill.file->abandon();
  fill.file.reset();
  fill.room.reset();
}

// --- past the cache

void CacheCore::past(const FillPtr& fill) {
  std::vector<BlockRead> waiters;
  {
    Lock lock(mutex_);
    waiters.swap(fill->waiters);
    leave(lock, fill);
  }
  for (BlockRead& read : waiters) past(std::move(read));
}

void CacheCore::past(BlockRead read) {
  if (read.out.empty()) return read.done(no_room());
  auto held = std::make_shared<BlockRead>(std::move(read));
  held->source->fetch(*held->block, held->offset, held->out, held->stop,
                      [self = shared_from_this(), held](Result<void> outcome) {
                        if (outcome) CacheCounts::add(self->counts_.past_bytes, held->out.size());
                        held->done(std::move(outcome));
                      });
}

}  // namespace headpond
