#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "format/formats.h"
#include "format/tar_index.h"

using namespace headpond;

// An index of any bytes, made to pass its checksums, is refused or leads nowhere
// outside of its shard.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> image(bytes, bytes + size);
  if (TarIndex::open(Image(image), 0, {}) && size == 0) std::abort();
  seal_tar_index(image);
  if (image.size() < 96) return 0;
  const Digest version{read_le<std::uint64_t>(image, 64), read_le<std::uint64_t>(image, 72)};
  const auto shard_bytes = read_le<std::uint64_t>(image, 80);
  const auto index = TarIndex::open(Image(std::move(image)), shard_bytes, version);
  if (!index || (*index)->samples() == 0) return 0;
  const auto format =
      make_webdataset_format(*Manifest::build(*Uri::parse("/shards"), {{"a.tar", {}}}), {*index});
  if (format->size() != (*index)->samples()) std::abort();
  for (std::uint64_t sample = 0; sample < format->size(); ++sample) {
    static_cast<void>(format->key(sample));
    for (std::size_t field = 0; field < format->fields().size() && field < 8; ++field) {
      Extent extent;
      format->locate({&sample, 1}, field, {&extent, 1});
      if (extent.object == Extent::kMissing) continue;
      if (extent.offset > shard_bytes || extent.size > shard_bytes - extent.offset) std::abort();
    }
  }
  return 0;
}
