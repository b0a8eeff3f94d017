#include "io/handle_cache.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace headpond {

std::shared_ptr<FileHandle> HandleCache::find(std::uint32_t root, std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(KeyView{root, name});
  if (found == entries_.end()) return nullptr;
  order_.splice(order_.end(), order_, found->second.place);
  return found->second.handle;
}

std::shared_ptr<FileHandle> HandleCache::insert(std::uint32_t root, std::string_view name,
                                                std::shared_ptr<FileHandle> handle) {
  std::vector<std::shared_ptr<FileHandle>> closed;  // outside the lock: close() may take long
  const std::lock_guard lock(mutex_);
  if (const auto found = entries_.find(KeyView{root, name}); found != entries_.end()) {
    if (found->second.handle->version == handle->version) return found->second.handle;
    closed.push_back(std::exchange(found->second.handle, handle));
    return handle;
  }
  if (max_ == 0) return handle;
  while (entries_.size() >= max_) {
    const auto oldest = entries_.find(*order_.front());
    closed.push_back(std::move(oldest->second.handle));
    remove(oldest);
  }
  const auto entry = entries_.emplace(Key{root, std::string(name)}, Entry{handle, {}}).first;
  entry->second.place = order_.insert(order_.end(), &entry->first);
  return handle;
}

void HandleCache::erase(std::uint32_t root, std::string_view name,
                        const std::shared_ptr<FileHandle>& handle) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(KeyView{root, name});
  if (found != entries_.end() && found->second.handle == handle) remove(found);
}

void HandleCache::erase_root(std::uint32_t root) {
  const std::lock_guard lock(mutex_);
  for (auto at = entries_.begin(); at != entries_.end();) {
    const auto next = std::next(at);
    if (at->first.root == root) remove(at);
    at = next;
  }
}

std::size_t HandleCache::evict(std::size_t count) {
  std::vector<std::shared_ptr<FileHandle>> closed;
  const std::lock_guard lock(mutex_);
  while (closed.size() < count && !entries_.empty()) {
    const auto oldest = entries_.find(*order_.front());
    closed.push_back(std::move(oldest->second.handle));
    remove(oldest);
  }
  return closed.size();
}

std::size_t HandleCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

void HandleCache::remove(Entries::iterator entry) {
  order_.erase(entry->second.place);
  entries_.erase(entry);
}

std::size_t default_handles_max() {
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 256;
  return static_cast<std::size_t>(std::clamp<rlim_t>(limit.rlim_cur / 4, 1, 4096));
}

}  // namespace headpond
