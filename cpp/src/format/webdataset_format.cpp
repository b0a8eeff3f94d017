#include <algorithm>
#include <unordered_map>
#include <utility>

#include "format/formats.h"
#include "format/shard_lookup.h"
#include "format/tar_index.h"

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

class WebDatasetFormat final : public Format {
 public:
  explicit WebDatasetFormat(std::vector<std::shared_ptr<const TarIndex>> indexes)
      : fields_(fields_of_first_sample(indexes)), shards_(indexes.size()) {
    std::unordered_map<std::string, std::uint32_t> numbers;
    for (const auto& field : fields_)
      numbers.emplace(field.name, static_cast<std::uint32_t>(numbers.size()));
    std::vector<std::uint64_t> counts;
    for (std::size_t i = 0; i < indexes.size(); ++i) {
      counts.push_back(indexes[i]->samples());
      Shard& shard = shards_[i];
      for (std::uint64_t suffix = 0; suffix < indexes[i]->suffix_count(); ++suffix) {
        const auto found = numbers.find(lower_case(indexes[i]->suffix(suffix)));
        shard.field_of_suffix.push_back(found == numbers.end() ? kNoField : found->second);
      }
      shard.index = std::move(indexes[i]);
    }
    lookup_ = ShardLookup(counts);
  }

  std::uint64_t size() const override { return lookup_.size(); }
  std::span<const Field> fields() const override { return fields_; }

  void locate(std::span<const std::uint64_t> samples, std::size_t field,
              std::span<Extent> out) const override {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto place = lookup_.find(samples[i]);
      out[i] = find_field(place, static_cast<std::uint32_t>(field));
    }
  }

  std::string key(std::uint64_t sample) const override {
    const auto place = lookup_.find(sample);
    std::string key;
    shards_[place.shard].index->key(place.row, key);
    return key;
  }

  std::vector<std::uint64_t> shard_counts() const override { return lookup_.counts(); }

 private:
  struct Shard {
    std::shared_ptr<const TarIndex> index;
    std::vector<std::uint32_t> field_of_suffix;
  };

  Extent find_field(const ShardLookup::Place& place, std::uint32_t field) const {
    const Shard& shard = shards_[place.shard];
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

  static std::uint32_t field_of(const Shard& shard, std::uint32_t member) {
    return shard.field_of_suffix[shard.index->suffix_of(member)];
  }

  static Extent extent_of(std::uint32_t object, const TarIndex& index, std::uint32_t number) {
    const auto member = index.member(number);
    return {object, member.offset, member.size};
  }

  std::vector<Field> fields_;
  std::vector<Shard> shards_;
  ShardLookup lookup_;
};

}  // namespace

std::unique_ptr<const Format> make_webdataset_format(
    std::vector<std::shared_ptr<const TarIndex>> indexes) {
  return std::make_unique<WebDatasetFormat>(std::move(indexes));
}

}  // namespace headpond
