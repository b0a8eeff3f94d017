#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "headpond/manifest.h"

namespace headpond {

// A manifest over the bytes of a saved one. Errors: as Manifest::load.
Result<std::shared_ptr<const Manifest>> open_manifest_image(std::vector<std::byte> bytes);

// Writes the checksums of an image whose other bytes are set.
void seal_manifest(std::span<std::byte> image);

}  // namespace headpond
