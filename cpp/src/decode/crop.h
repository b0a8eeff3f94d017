#pragma once

#include <cstdint>

#include "headpond/decoder.h"
#include "headpond/sampler.h"

namespace headpond::decode {

struct PixelSize {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  bool operator==(const PixelSize&) const = default;
};

struct PixelBox {
  std::uint32_t left = 0;
  std::uint32_t top = 0;
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  bool operator==(const PixelBox&) const = default;
};

// One axis of what a sample shows: pixels [first, first + length) of the picture
// become `resized` pixels; of these cut_count from cut_first on are wanted, in the
// opposite order when `mirrored`.
struct AxisView {
  std::uint32_t first = 0;
  std::uint32_t length = 0;
  std::uint32_t resized = 0;
  std::uint32_t cut_first = 0;
  std::uint32_t cut_count = 0;
  bool mirrored = false;
  bool operator==(const AxisView&) const = default;
};

struct View {
  AxisView x;
  AxisView y;
  bool transposed = false;  // rows of this view are columns of the result
  bool operator==(const View&) const = default;
};

// Draws from `random` (crop first, then flip). `picture` is not empty.
View choose_view(const ImageOptions& options, PixelSize picture, SampleRandom& random);

// The same view in the pixels as stored, for a picture that its EXIF orientation
// turns when it is shown; `shown` is its size after that.
View stored_view(const View& view, PixelSize shown, int orientation);
PixelSize shown_size(PixelSize stored, int orientation);

// torchvision's RandomResizedCrop.get_params: 10 tries, then the centre.
PixelBox random_resized_box(const ImageOptions& options, PixelSize picture, SampleRandom& random);

}  // namespace headpond::decode
