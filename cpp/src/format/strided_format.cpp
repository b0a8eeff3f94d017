#include "format/strided_format.h"

namespace headpond {

Result<std::unique_ptr<const Format>> StridedFormat::make(std::shared_ptr<const Manifest> manifest,
                                                          std::vector<File> files, Field field,
                                                          std::uint64_t sample_bytes,
                                                          std::uint64_t step_bytes) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0} >> 1;
  std::vector<std::uint64_t> counts, headers;
  std::uint64_t total = 0;
  for (const File& file : files) {
    const bool fits =
        file.samples <= kMost - total &&
        (file.samples == 0 || step_bytes == 0 || file.samples - 1 <= kMost / step_bytes) &&
        (file.samples == 0 || sample_bytes <= kMost - step_bytes * (file.samples - 1)) &&
        file.header_bytes <= kMost;
    if (!fits)
      return Error(ErrorCode::corrupt_data, "the offsets of the samples do not fit 63 bits");
    total += file.samples;
    counts.push_back(file.samples);
    headers.push_back(file.header_bytes);
  }
  return std::unique_ptr<const Format>(new StridedFormat(std::move(manifest), ShardLookup(counts),
                                                         std::move(headers), std::move(field),
                                                         sample_bytes, step_bytes));
}

void StridedFormat::locate(std::span<const std::uint64_t> samples, std::size_t /*field*/,
                           std::span<Extent> out) const {
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto place = lookup_.find(samples[i]);
    out[i] = {place.shard, headers_[place.shard] + place.row * step_bytes_, sample_bytes_};
  }
}

std::string StridedFormat::key(std::uint64_t sample) const {
  const auto place = lookup_.find(sample);
  return manifest_->key(place.shard) + ":" + std::to_string(place.row);
}

}  // namespace headpond
