#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../cpp/support/tar_writer.h"
#include "format/shipped_index.h"
#include "format/tar_index.h"
#include "format/tar_index_folder.h"

using namespace headpond;

namespace {

// The shard that the indexes of the corpus belong to.
const std::string& shard() {
  static const std::string bytes = [] {
    TarWriter tar;
    for (int i = 0; i < 5; ++i) {
      const std::string key = "d/" + std::to_string(i);
      tar.file(key + ".jpg", std::string(static_cast<std::size_t>(i) * 300, 'j'));
      tar.file(key + ".cls", std::to_string(i));
    }
    return tar.end().bytes();
  }();
  return bytes;
}

Result<void> read(std::uint64_t offset, std::span<std::byte> out) {
  if (offset > shard().size() || out.size() > shard().size() - offset) std::abort();
  std::memcpy(out.data(), shard().data() + offset, out.size());
  return {};
}

void check(ShippedKind kind, const std::vector<std::byte>& file) {
  ObjectVersion version;
  version.size = shard().size();
  const auto image = take_shipped_index(kind, file, version, read);
  if (!image) {
    if (image.error().message().empty()) std::abort();
    return;
  }
  const auto index = TarIndex::open(Image(*image), version.size, digest_of(version));
  if (!index) std::abort();
  for (std::uint64_t i = 0; i < (*index)->members(); ++i) {
    const auto member = (*index)->member(i);
    if (member.offset > version.size || member.size > version.size - member.offset) std::abort();
  }
}

}  // namespace

// Any bytes are an index that leads nowhere outside of its shard, or an error with a message: as
// text of DALI's, and as one of ours whose checksums fit.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> file(bytes, bytes + size);
  check(ShippedKind::dali, file);
  seal_tar_index(file);
  check(ShippedKind::headpond, file);
  return 0;
}
