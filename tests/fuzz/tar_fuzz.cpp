#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "format/tar_index.h"

using namespace headpond;

// Any bytes are a shard whose index opens again and stays within it, or an error
// with a message.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto read = [&](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
    if (offset > size || out.size() > size - offset) std::abort();
    std::memcpy(out.data(), data + offset, out.size());
    return {};
  };
  const Digest version{1, 2};
  auto image = build_tar_index(size, version, read, nullptr);
  if (!image) {
    if (image.error().to_string().empty()) std::abort();
    return 0;
  }
  const auto index = TarIndex::open(Image(*std::move(image)), size, version);
  if (!index) std::abort();
  std::string key;
  for (std::uint64_t sample = 0; sample < (*index)->samples(); ++sample) {
    (*index)->key(sample, key);
    if (key.empty()) std::abort();
  }
  for (std::uint64_t i = 0; i < (*index)->members(); ++i) {
    const auto member = (*index)->member(i);
    if (member.offset % 512 != 0 || member.offset > size || member.size > size - member.offset)
      std::abort();
  }
  return 0;
}
