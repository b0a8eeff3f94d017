#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "decode/crop.h"

namespace headpond {

// What PIL does, written plainly: the whole picture decoded, converted to RGB,
// cropped and resized in floating point.
struct Pixels {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::vector<double> rgb;

  double& at(std::uint32_t x, std::uint32_t y, std::size_t c) {
    return rgb[(std::size_t{y} * width + x) * 3 + c];
  }
  double at(std::uint32_t x, std::uint32_t y, std::size_t c) const {
    return rgb[(std::size_t{y} * width + x) * 3 + c];
  }
};

// A JPEG that decodes without a fatal error.
Pixels plain_decode(std::span<const std::byte> jpeg);
Pixels plain_crop(const Pixels& picture, const decode::PixelBox& box);
Pixels plain_resize(const Pixels& picture, std::uint32_t width, std::uint32_t height);
Pixels plain_view(const Pixels& picture, const decode::View& view);
Pixels plain_turn(const Pixels& picture, int orientation);  // as PIL's ImageOps.exif_transpose

struct Difference {
  double mean = 0;
  double p999 = 0;
  double most = 0;
};
// Of pixels R, G, B in rows (`shown`) from the reference.
Difference difference(const Pixels& reference, std::span<const std::byte> shown);

}  // namespace headpond
