#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "format/formats.h"
#include "format/shard_lookup.h"
#include "format/store_reading.h"
#include "format/tar_index.h"
#include "format/tar_index_folder.h"

namespace headpond {
namespace {

constexpr std::uint32_t kNoField = ~std::uint32_t{0};

// The fields of the first sample there is, in the order of its members.
std::vector<Field> fields_of_first_sample(
    const std::vector<std::shared_ptr<const TarIndex>>& indexes) {
  std::vector<Field> fields;
  for (const auto& index : indexes) {
    if (index->samples() == 0) continue;
    for (std::uint32_t member = 0; member < index->first_member(1); ++member) {
      fields.push_back(
          {lower_case(index->suffix(index->suffix_of(member))), DType::bytes, std::nullopt, false});
    }
    break;
  }
  return fields;
}

// A shard whose index is there.
struct KnownShard {
  std::shared_ptr<const TarIndex> index;
  ObjectVersion version;
  std::vector<std::uint32_t> field_of_suffix;
};

class TarShardIndexing final : public ShardIndexing {
 public:
  using Known = std::function<Result<void>(std::vector<std::byte> image)>;
  TarShardIndexing(const ObjectVersion& version, Read read, Known known)
      : indexing_(version.size, digest_of(version), std::move(read)), known_(std::move(known)) {}

  Result<bool> advance(std::uint64_t available) override {
    constexpr std::uint64_t kMembersAtOnce = 4096;
    auto image = indexing_.advance(available, kMembersAtOnce);
    if (!image) return std::move(image).error();
    if (!*image) return false;
    if (auto known = known_(**std::move(image)); !known) return std::move(known).error();
    return true;
  }
  std::uint64_t needed() const override { return indexing_.needed(); }

 private:
  TarIndexing indexing_;
  Known known_;
};

// Shards become known one by one; what is known never changes, so that readers need no lock.
class WebDatasetFormat final : public Format, public Shards {
 public:
  WebDatasetFormat(std::vector<Field> fields, std::shared_ptr<const Manifest> manifest,
                   std::shared_ptr<const TarIndexFolder> folder, ShardPromises promises)
      : fields_(std::move(fields)),
        manifest_(std::move(manifest)),
        folder_(std::move(folder)),
        promises_(std::move(promises)),
        shards_(manifest_->size()),
        left_(shards_.size()) {
    for (const auto& field : fields_)
      numbers_.emplace(field.name, static_cast<std::uint32_t>(numbers_.size()));
  }

  // What was promised of a shard is kept, or it is an error.
  Result<void> learn(std::uint64_t number, std::shared_ptr<const TarIndex> index,
                     const ObjectVersion& version) const {
    auto kept = check_promise(promises_, number, index->samples());
    if (!kept) return std::move(kept).error().at_uri(object_uri(*manifest_, number));
    add(number, std::move(index), version);
    return {};
  }

  // Of the shards `add` was called for; the last one makes the size known.
  void add(std::uint64_t number, std::shared_ptr<const TarIndex> index,
           const ObjectVersion& version) const {
    auto shard = std::make_unique<KnownShard>();
    for (std::uint64_t suffix = 0; suffix < index->suffix_count(); ++suffix) {
      const auto found = numbers_.find(lower_case(index->suffix(suffix)));
      shard->field_of_suffix.push_back(found == numbers_.end() ? kNoField : found->second);
    }
    shard->index = std::move(index);
    shard->version = version;
    const std::lock_guard lock(mutex_);
    Slot& slot = shards_[number];
    if (slot.owned != nullptr) return;  // two loaders indexed it at once
    slot.owned = std::move(shard);
    slot.known.store(slot.owned.get(), std::memory_order_release);
    if (--left_ > 0) return;
    std::vector<std::uint64_t> counts;
    for (const Slot& each : shards_) counts.push_back(each.owned->index->samples());
    lookup_ = std::make_unique<ShardLookup>(counts);
    all_known_.store(lookup_.get(), std::memory_order_release);
  }

  // --- Format ---

  std::uint64_t size() const override {
    const ShardLookup* all = all_known();
    return all == nullptr ? kUnknownSize : all->size();
  }
  std::span<const Field> fields() const override { return fields_; }

  void locate(std::span<const std::uint64_t> samples, std::size_t field,
              std::span<Extent> out) const override {
    const ShardLookup* all = all_known();
    for (std::size_t i = 0; i < samples.size(); ++i)
      out[i] = find_field(place_of(all, samples[i]), static_cast<std::uint32_t>(field));
  }

  std::string key(std::uint64_t sample) const override {
    const auto place = place_of(all_known(), sample);
    std::string key;
    known(place.shard)->index->key(place.row, key);
    return key;
  }

  std::vector<std::uint64_t> shard_counts() const override {
    const ShardLookup* all = all_known();
    return all == nullptr ? std::vector<std::uint64_t>() : all->counts();
  }

  const Shards* shards() const override { return this; }

  std::uint64_t random_key(std::uint64_t sample) const override {
    const auto place = place_of(all_known(), sample);
    return number(place.shard, place.row);
  }

  // --- Shards ---

  std::uint64_t shard_number() const override { return shards_.size(); }
  std::optional<std::uint64_t> count(std::uint64_t shard) const override {
    const KnownShard* found = known(shard);
    if (found == nullptr) return std::nullopt;
    return found->index->samples();
  }
  std::optional<std::uint64_t> promised(std::uint64_t shard) const override {
    if (promises_.counts.empty()) return std::nullopt;
    return promises_.counts[shard];
  }
  ObjectVersion version(std::uint64_t shard) const override {
    const KnownShard* found = known(shard);
    return found == nullptr ? manifest_->version(shard) : found->version;
  }
  Result<std::unique_ptr<ShardIndexing>> index(std::uint64_t shard, const ObjectVersion& version,
                                               ShardIndexing::Read read) const override {
    const std::string uri = object_key(*manifest_, shard);
    auto kept = folder_->find(uri, version);
    if (kept && *kept) {
      if (auto learned = learn(shard, *std::move(kept), version); !learned)
        return std::move(learned).error();
      return std::unique_ptr<ShardIndexing>();
    }
    return std::unique_ptr<ShardIndexing>(std::make_unique<TarShardIndexing>(
        version, std::move(read),
        [this, shard, version, uri](std::vector<std::byte> image) -> Result<void> {
          auto made = folder_->keep(uri, version, std::move(image));
          if (!made) return std::move(made).error();
          return learn(shard, *std::move(made), version);
        }));
  }
  Result<void> make_known(std::uint64_t shard, const Making& making) const override {
    auto index =
        folder_->get({object_key(*manifest_, shard), making.version, making.read, making.shipped},
                     making.proceed);
    if (!index) return std::move(index).error();
    return learn(shard, *std::move(index), making.version);
  }

 private:
  struct Slot {
    std::atomic<const KnownShard*> known{nullptr};
    std::unique_ptr<const KnownShard> owned;
  };

  const KnownShard* known(std::uint64_t shard) const {
    return shards_[shard].known.load(std::memory_order_acquire);
  }
  const ShardLookup* all_known() const { return all_known_.load(std::memory_order_acquire); }

  static ShardLookup::Place place_of(const ShardLookup* all, std::uint64_t sample) {
    if ((sample & kByShard) == 0) return all->find(sample);
    return {static_cast<std::uint32_t>((sample & ~kByShard) >> 32), sample & 0xFFFFFFFF};
  }

  Extent find_field(const ShardLookup::Place& place, std::uint32_t field) const {
    const KnownShard& shard = *known(place.shard);
    const std::uint32_t first = shard.index->first_member(place.row);
    const std::uint32_t stop = shard.index->first_member(place.row + 1);
    // Most samples have the first one's fields in its order.
    const std::uint32_t likely = std::min(first + field, stop - 1);
    if (field_of(shard, likely) == field) return extent_of(place.shard, *shard.index, likely);
    for (std::uint32_t member = first; member < stop; ++member) {
      if (field_of(shard, member) == field) return extent_of(place.shard, *shard.index, member);
    }
    return {};  // kMissing
  }

  static std::uint32_t field_of(const KnownShard& shard, std::uint32_t member) {
    return shard.field_of_suffix[shard.index->suffix_of(member)];
  }

  static Extent extent_of(std::uint32_t object, const TarIndex& index, std::uint32_t number) {
    const auto member = index.member(number);
    return {object, member.offset, member.size};
  }

  const std::vector<Field> fields_;
  const std::shared_ptr<const Manifest> manifest_;
  const std::shared_ptr<const TarIndexFolder> folder_;
  const ShardPromises promises_;
  std::unordered_map<std::string, std::uint32_t> numbers_;  // of fields

  mutable std::mutex mutex_;  // of writers
  mutable std::vector<Slot> shards_;
  mutable std::uint64_t left_;
  mutable std::unique_ptr<const ShardLookup> lookup_;
  mutable std::atomic<const ShardLookup*> all_known_{nullptr};
};

}  // namespace

std::unique_ptr<const Format> make_webdataset_format(
    std::shared_ptr<const Manifest> manifest,
    std::vector<std::shared_ptr<const TarIndex>> indexes) {
  auto format = std::make_unique<WebDatasetFormat>(fields_of_first_sample(indexes), manifest,
                                                   std::make_shared<TarIndexFolder>("", nullptr),
                                                   ShardPromises());
  for (std::size_t i = 0; i < indexes.size(); ++i)
    format->add(i, std::move(indexes[i]), manifest->version(i));
  return format;
}

std::unique_ptr<const Format> make_late_webdataset_format(
    std::vector<Field> fields, std::shared_ptr<const Manifest> manifest,
    std::shared_ptr<const TarIndexFolder> folder, ShardPromises promises) {
  return std::make_unique<WebDatasetFormat>(std::move(fields), std::move(manifest),
                                            std::move(folder), std::move(promises));
}

Result<void> check_promise(const ShardPromises& promises, std::uint64_t shard,
                           std::uint64_t count) {
  if (promises.counts.empty()) return {};
  const auto promised = promises.counts[shard];
  if (!promised || *promised == count) return {};
  return Error(ErrorCode::corrupt_data,
               "the shard has " + std::to_string(count) + " samples, and " + promises.list +
                   " says " + std::to_string(*promised) + ": write the list again, or remove it");
}

}  // namespace headpond
