#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "format/manifest_image.h"

using namespace headpond;

// A manifest of any bytes, made to pass its checksums, is refused or read within
// its bounds.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> image(bytes, bytes + size);
  static_cast<void>(open_manifest_image(image));
  seal_manifest(image);
  const auto manifest = open_manifest_image(std::move(image));
  if (!manifest) {
    if (manifest.error().message().empty()) std::abort();
    return 0;
  }
  std::string name;
  for (std::uint64_t i = 0; i < (*manifest)->size(); ++i) {
    (*manifest)->name(i, name);
    if (name.size() > size * 64) std::abort();
    if ((*manifest)->version(i).size != (*manifest)->object_size(i)) std::abort();
  }
  return 0;
}
