#include "cache/block_handles.h"

namespace headpond {

std::shared_ptr<const PublishedBlock> BlockHandles::find(const BlockKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(key);
  if (found == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  found->second->used = true;
  return found->second->block;
}

void BlockHandles::put(const BlockKey& key, std::shared_ptr<const PublishedBlock> block) {
  std::shared_ptr<const PublishedBlock> closed;  // outside the lock
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(key);
  if (found != places_.end()) {
    closed = std::exchange(found->second->block, std::move(block));
    return;
  }
  entries_.push_front({key, std::move(block)});
  places_.emplace(key, entries_.begin());
  if (entries_.size() <= kMost) return;
  closed = std::move(entries_.back().block);
  places_.erase(entries_.back().key);
  entries_.pop_back();
}

void BlockHandles::drop(const BlockKey& key) {
  std::shared_ptr<const PublishedBlock> closed;
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(key);
  if (found == places_.end()) return;
  closed = std::move(found->second->block);
  entries_.erase(found->second);
  places_.erase(found);
}

void BlockHandles::drop_unused() {
  std::list<Entry> closed;
  const std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto here = entry++;
    if (std::exchange(here->used, false)) continue;
    places_.erase(here->key);
    closed.splice(closed.begin(), entries_, here);
  }
}

}  // namespace headpond
