#include "headpond/dataset.h"

#include <utility>

#include "base/digest.h"
#include "cache/block_map.h"
#include "data/beside.h"
#include "format/store_reading.h"

namespace headpond {

std::string sample_name(std::optional<std::uint64_t> number, std::string_view key) {
  return "sample " + (number ? std::to_string(*number) + " " : "") + "(key \"" + std::string(key) +
         "\")";
}

Dataset::Dataset(Parts parts) : parts_(std::move(parts)) {
  const auto& digests = parts_.manifest->digests();
  fingerprint_ = DigestBuilder()
                     .add("headpond dataset 1")
                     .add(parts_.arguments)
                     .add(digests.names)
                     .finish()
                     .hex();
  // Of shards whose versions come late nobody knows the sizes.
  if (manifest().size() > 0 && !manifest().version(0).is_any())
    blocks_ = std::make_shared<const BlockMap>(parts_.manifest, manifest().root().to_string());
  if (!size_is_known()) return;
  DigestBuilder sizes;
  sizes.add(digests.sizes).add(size());
  for (const std::uint64_t count : parts_.format->shard_counts()) sizes.add(count);
  size_digest_ = sizes.finish().hex();
  snapshot_ =
      DigestBuilder().add(fingerprint_).add(size_digest_).add(digests.versions).finish().hex();
}

std::optional<std::uint64_t> Dataset::promised_size() const {
  if (size_is_known()) return size();
  const Shards& shards = *format().shards();
  std::uint64_t size = 0;
  for (std::uint64_t shard = 0; shard < shards.shard_number(); ++shard) {
    auto count = shards.count(shard);
    if (!count) count = shards.promised(shard);
    if (!count) return std::nullopt;
    size += *count;
  }
  return size;
}

bool Dataset::indexes_lie_beside() const { return beside() != nullptr && beside()->kind; }

bool Dataset::holds(std::uint64_t index) const {
  if (!is_by_shard(index)) return size_is_known() && index < size();
  const std::uint64_t shard = (index & ~Shards::kByShard) >> 32;
  if (shard >= format().shards()->shard_number()) return false;
  const auto count = format().shards()->count(shard);
  return count && (index & 0xFFFFFFFF) < *count;
}

Result<std::size_t> Dataset::field_index(std::string_view name) const {
  std::string there;
  for (std::size_t i = 0; i < fields().size(); ++i) {
    if (fields()[i].name == name) return i;
    there += (i == 0 ? "\"" : ", \"") + fields()[i].name + "\"";
  }
  return Error(ErrorCode::invalid_argument,
               "there is no field \"" + std::string(name) + "\"; the fields are " + there);
}

namespace {

Extent extent_of(const Format& format, std::uint64_t index, std::size_t field) {
  Extent extent;
  format.locate({&index, 1}, field, {&extent, 1});
  return extent;
}

}  // namespace

ObjectVersion Dataset::version(std::uint32_t object) const {
  const Shards* shards = format().shards();
  return shards == nullptr ? manifest().version(object) : shards->version(object);
}

std::optional<Extent> Dataset::first_extent(std::size_t field) const {
  if (size() == 0) return std::nullopt;
  Extent extent;
  if (size_is_known()) {
    extent = extent_of(format(), 0, field);
  } else if (field < parts_.first_sample.size()) {
    extent = parts_.first_sample[field];
  }
  if (extent.object == Extent::kMissing) return std::nullopt;
  return extent;
}

Result<std::vector<SampleRange>> Dataset::locate(std::uint64_t index) const {
  if (!size_is_known() && !is_by_shard(index)) {
    return Error(ErrorCode::invalid_argument, "which sample is number " + std::to_string(index) +
                                                  " is not known before the shards are indexed");
  }
  if (!holds(index)) {
    return Error(ErrorCode::invalid_argument, "there is no sample " + std::to_string(index) +
                                                  "; the dataset has " + std::to_string(size()));
  }
  std::vector<SampleRange> ranges;
  for (std::size_t field = 0; field < fields().size(); ++field) {
    const Extent extent = extent_of(format(), index, field);
    if (!extent.is_stored()) continue;
    ranges.push_back(
        {object_uri(manifest(), extent.object), {extent.offset, extent.offset + extent.size}});
  }
  return ranges;
}

Result<std::shared_ptr<Store>> Dataset::store(StoreRegistry& registry) const {
  if (parts_.store) return parts_.store;
  return registry.open(manifest().root(), parts_.caching, blocks_);
}

bool Dataset::is_by_shard(std::uint64_t sample) const {
  return (sample & Shards::kByShard) != 0 && format().shards() != nullptr;
}

std::optional<std::uint64_t> Dataset::number_of(std::uint64_t sample) const {
  if (!is_by_shard(sample)) return sample;
  if (!size_is_known()) return std::nullopt;
  const std::uint64_t shard = (sample & ~Shards::kByShard) >> 32;
  std::uint64_t number = sample & 0xFFFFFFFF;
  for (std::uint64_t before = 0; before < shard; ++before)
    number += *format().shards()->count(before);
  return number;
}

std::string Dataset::name_of(std::uint64_t sample) const {
  return sample_name(number_of(sample), key(sample));
}

Error Dataset::describe(Error error, std::uint64_t index, std::optional<std::size_t> field) const {
  const bool by_shard = is_by_shard(index);
  if (const auto number = number_of(index); by_shard && number)
    return describe(std::move(error), *number, field);
  if (!by_shard && (index >= size() || !size_is_known()))
    return std::move(error).at_sample(index).in("sample " + std::to_string(index));
  // The field that failed, or the first one with bytes.
  for (std::size_t i = field.value_or(0); i < fields().size(); ++i) {
    const Extent extent = extent_of(format(), index, i);
    if (extent.is_stored()) {
      error = std::move(error)
                  .at_uri(object_uri(manifest(), extent.object))
                  .at_range({extent.offset, extent.offset + extent.size});
      break;
    }
    if (field) break;
  }
  if (!by_shard) error = std::move(error).at_sample(index);
  return std::move(error).in(name_of(index));
}

}  // namespace headpond
