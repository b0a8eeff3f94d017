#include <algorithm>
#include <utility>

#include "format/formats.h"

namespace headpond {
namespace {

class FilesFormat final : public Format {
 public:
  FilesFormat(std::shared_ptr<const Manifest> manifest, std::optional<std::vector<LabelRun>> runs)
      : manifest_(std::move(manifest)) {
    fields_.push_back({"data", DType::bytes, std::nullopt, false});
    if (!runs) return;
    fields_.push_back({"label", DType::int64, Shape{}, false});
    runs_ = *std::move(runs);
  }

  std::uint64_t size() const override { return manifest_->size(); }
  std::span<const Field> fields() const override { return fields_; }

  void locate(std::span<const std::uint64_t> samples, std::size_t field, std::span<Extent> out) const override {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      out[i] = field == 0 ? data_of(samples[i]) : Extent{Extent::kValue, label_of(samples[i]), 0};
    }
  }

  std::string key(std::uint64_t sample) const override {
    std::string name;
    manifest_->name(sample, name);
    return name;
  }

  std::vector<std::uint64_t> shard_counts() const override { return {size()}; }

 private:
  Extent data_of(std::uint64_t sample) const {
    return {static_cast<std::uint32_t>(sample), 0, manifest_->object_size(sample)};
  }

  std::uint64_t label_of(std::uint64_t sample) const {
    const auto after = std::upper_bound(runs_.begin(), runs_.end(), sample,
                                        [](std::uint64_t value, const LabelRun& run) { return value < run.first; });
    return static_cast<std::uint64_t>(std::prev(after)->label);
  }

  std::shared_ptr<const Manifest> manifest_;
  std::vector<Field> fields_;
  std::vector<LabelRun> runs_;
};

}  // namespace

std::unique_ptr<const Format> make_files_format(std::shared_ptr<const Manifest> manifest,
                                                std::optional<std::vector<LabelRun>> runs) {
  return std::make_unique<FilesFormat>(std::move(manifest), std::move(runs));
}

}  // namespace headpond
