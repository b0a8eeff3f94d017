#include "cache/block_map.h"

#include <algorithm>
#include <utility>

#include "io/http_url.h"

namespace headpond {

bool is_cacheable(const ObjectVersion& version) {
  return version.size != ObjectVersion::kAnySize && version.size > 0 &&
         (!version.etag.empty() || version.mtime_ns != 0);
}

ByteRange block_range(std::uint64_t offset, std::uint64_t object_bytes) {
  const std::uint64_t start = offset / kBlockBytes * kBlockBytes;
  return {start, std::min(object_bytes, start + kBlockBytes)};
}

std::string object_identity(std::string_view prefix, std::string_view name) {
  std::string uri(prefix);
  if (uri.empty() || uri.back() != '/') uri += '/';
  return uri.append(without_signature(name));
}

BlockMap::BlockMap(std::shared_ptr<const ObjectList> objects, std::string prefix)
    : objects_(std::move(objects)), prefix_(std::move(prefix)) {}

BlockMap::Cut& BlockMap::cut() const {
  std::call_once(cut_once_, [&] {
    std::vector<std::uint64_t>& first_objects = cut_.first_objects;
    std::uint64_t run = 0;  // bytes of the last block, if it is a run
    for (std::uint64_t i = 0; i < objects_->size(); ++i) {
      const std::uint64_t bytes = objects_->object_size(i);
      if (bytes == 0) continue;  // nothing to keep; within a run it takes no room
      if (bytes < kBundledBelowBytes) {
        if (run == 0 || run + bytes > kBlockBytes) {
          first_objects.push_back(i);
          run = 0;
        }
        run += bytes;
        continue;
      }
      run = 0;
      first_objects.insert(first_objects.end(), (bytes + kBlockBytes - 1) / kBlockBytes, i);
    }
    cut_.keys = std::vector<MadeKey>(first_objects.size());
  });
  return cut_;
}

bool BlockMap::is_small(std::uint64_t object) const {
  return objects_->object_size(object) < kBundledBelowBytes;
}

BlockMap::Place BlockMap::place(std::uint64_t object, std::uint64_t offset) const {
  const auto& first_objects = cut().first_objects;
  if (!is_small(object)) {
    const auto first = std::lower_bound(first_objects.begin(), first_objects.end(), object);
    return {static_cast<std::uint64_t>(first - first_objects.begin()) + offset / kBlockBytes,
            offset % kBlockBytes};
  }
  const auto behind = std::upper_bound(first_objects.begin(), first_objects.end(), object);
  const auto block = static_cast<std::uint64_t>(behind - first_objects.begin()) - 1;
  for (std::uint64_t i = first_objects[block]; i < object; ++i) offset += objects_->object_size(i);
  return {block, offset};
}

BlockMap::Objects BlockMap::objects(std::uint64_t block) const {
  const auto& first_objects = cut().first_objects;
  const std::uint64_t first = first_objects[block];
  if (!is_small(first)) return {first, first + 1};
  std::uint64_t stop =
      block + 1 < first_objects.size() ? first_objects[block + 1] : objects_->size();
  while (stop > first + 1 && objects_->object_size(stop - 1) == 0) --stop;
  return {first, stop};
}

std::optional<std::vector<BlockExtent>> BlockMap::extents(std::uint64_t block) const {
  const auto& first_objects = cut().first_objects;
  const Objects held = objects(block);
  std::vector<BlockExtent> extents;
  std::string name;
  for (std::uint64_t i = held.first; i < held.stop; ++i) {
    auto version = objects_->version(i);
    if (version.size == 0) continue;
    if (!is_cacheable(version)) return std::nullopt;
    objects_->name(i, name);
    ByteRange range{0, version.size};
    if (held.stop == held.first + 1 && !is_small(i)) {
      const auto first = std::lower_bound(first_objects.begin(), first_objects.end(), i);
      range = block_range(
          (block - static_cast<std::uint64_t>(first - first_objects.begin())) * kBlockBytes,
          version.size);
    }
    extents.push_back({object_identity(prefix_, name), std::move(version), range});
  }
  return extents;
}

std::optional<Block> BlockMap::block(std::uint64_t index) const {
  auto held = extents(index);
  if (!held) return std::nullopt;
  return make_block(std::move(*held));
}

std::optional<BlockKey> BlockMap::key(std::uint64_t index) const {
  MadeKey& made = cut().keys[index];
  if (made.state.load(std::memory_order_acquire) == MadeKey::State::unknown) {
    const auto held = extents(index);
    std::vector<BlockPart> parts;
    if (held) {
      parts.reserve(held->size());
      for (const BlockExtent& extent : *held)
        parts.push_back({object_digest(extent.uri, extent.version), extent.range});
    }
    const std::lock_guard lock(making_);
    if (made.state.load(std::memory_order_relaxed) == MadeKey::State::unknown) {
      if (held) made.key = block_key(parts);
      made.state.store(held ? MadeKey::State::known : MadeKey::State::none,
                       std::memory_order_release);
    }
  }
  if (made.state.load(std::memory_order_acquire) == MadeKey::State::none) return std::nullopt;
  return made.key;
}

}  // namespace headpond
