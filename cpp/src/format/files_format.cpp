#include <utility>

#include "format/formats.h"
#include "format/shard_lookup.h"

namespace headpond {
namespace {

class FilesFormat final : public Format {
 public:
  FilesFormat(std::shared_ptr<const Manifest> manifest, std::optional<std::vector<LabelRun>> runs)
      : manifest_(std::move(manifest)) {
    fields_.push_back({"data", DType::bytes, std::nullopt, false});
    if (!runs) return;
    fields_.push_back({"label", DType::int64, Shape{}, false});
    std::vector<std::uint64_t> counts;
    for (std::size_t i = 0; i < runs->size(); ++i) {
      labels_.push_back((*runs)[i].label);
      counts.push_back((i + 1 < runs->size() ? (*runs)[i + 1].first : size()) - (*runs)[i].first);
    }
    runs_ = ShardLookup(counts);
  }

  std::uint64_t size() const override { return manifest_->size(); }
  std::span<const Field> fields() const override { return fields_; }

  void locate(std::span<const std::uint64_t> samples, std::size_t field,
              std::span<Extent> out) const override {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      out[i] = field == 0 ? data_of(samples[i]) : Extent{Extent::kValue, label_of(samples[i]), 0};
    }
  }

  std::string key(std::uint64_t sample) const override { return manifest_->key(sample); }

  std::vector<std::uint64_t> shard_counts() const override { return {size()}; }

 private:
  Extent data_of(std::uint64_t sample) const {
    return {static_cast<std::uint32_t>(sample), 0, manifest_->object_size(sample)};
  }

  std::uint64_t label_of(std::uint64_t sample) const {
    return static_cast<std::uint64_t>(labels_[runs_.find(sample).shard]);
  }

  std::shared_ptr<const Manifest> manifest_;
  std::vector<Field> fields_;
  ShardLookup runs_;  // files of one class that follow each other
  std::vector<std::int64_t> labels_;
};

}  // namespace

std::unique_ptr<const Format> make_files_format(std::shared_ptr<const Manifest> manifest,
                                                std::optional<std::vector<LabelRun>> runs) {
  return std::make_unique<FilesFormat>(std::move(manifest), std::move(runs));
}

}  // namespace headpond
