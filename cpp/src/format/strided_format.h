#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "format/shard_lookup.h"
#include "headpond/format.h"
#include "headpond/manifest.h"

namespace headpond {

// One field whose samples have one size and lie at even steps in each file.
class StridedFormat final : public Format {
 public:
  struct File {
    std::uint64_t header_bytes = 0;
    std::uint64_t samples = 0;
  };

  // Errors: corrupt_data when an offset or the number of samples does not fit 63 bits.
  static Result<std::unique_ptr<const Format>> make(std::shared_ptr<const Manifest> manifest,
                                                    std::vector<File> files, Field field,
                                                    std::uint64_t sample_bytes,
                                                    std::uint64_t step_bytes);

  std::uint64_t size() const override { return lookup_.size(); }
  std::span<const Field> fields() const override { return {&field_, 1}; }
  void locate(std::span<const std::uint64_t> samples, std::size_t field,
              std::span<Extent> out) const override;
  std::string key(std::uint64_t sample) const override;
  std::vector<std::uint64_t> shard_counts() const override { return lookup_.counts(); }

 private:
  StridedFormat(std::shared_ptr<const Manifest> manifest, ShardLookup lookup,
                std::vector<std::uint64_t> headers, Field field, std::uint64_t sample_bytes,
                std::uint64_t step_bytes)
      : manifest_(std::move(manifest)),
        lookup_(std::move(lookup)),
        headers_(std::move(headers)),
        field_(std::move(field)),
        sample_bytes_(sample_bytes),
        step_bytes_(step_bytes) {}

  std::shared_ptr<const Manifest> manifest_;
  ShardLookup lookup_;
  std::vector<std::uint64_t> headers_;
  Field field_;
  std::uint64_t sample_bytes_;
  std::uint64_t step_bytes_;
};

}  // namespace headpond
