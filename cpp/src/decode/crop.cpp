#include "decode/crop.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace headpond::decode {
namespace {

// Python's round(): halves go to the even neighbour (nearbyint in the default mode).
double round_half_even(double value) { return std::nearbyint(value); }

std::uint32_t to_side(double value) {
  return static_cast<std::uint32_t>(std::clamp(value, 1.0, 4294967295.0));
}

PixelBox centre_box(const ImageOptions& options, PixelSize picture) {
  const double ratio = static_cast<double>(picture.width) / static_cast<double>(picture.height);
  std::uint32_t width = picture.width;
  std::uint32_t height = picture.height;
  if (ratio < options.ratio_min) {
    height = std::min(height, to_side(round_half_even(picture.width / options.ratio_min)));
  } else if (ratio > options.ratio_max) {
    width = std::min(width, to_side(round_half_even(picture.height * options.ratio_max)));
  }
  return {(picture.width - width) / 2, (picture.height - height) / 2, width, height};
}

// torchvision's Resize: the longer side is truncated, not rounded.
PixelSize shorter_side_to(std::uint32_t side, PixelSize picture) {
  const auto scaled = [side](std::uint32_t longer, std::uint32_t shorter) {
    return to_side(std::trunc(static_cast<double>(side) * longer / shorter));
  };
  if (picture.width <= picture.height) return {side, scaled(picture.height, picture.width)};
  return {scaled(picture.width, picture.height), side};
}

std::uint32_t centred(std::uint32_t outer, std::uint32_t inner) {
  return static_cast<std::uint32_t>(round_half_even((outer - inner) / 2.0));
}

}  // namespace

PixelBox random_resized_box(const ImageOptions& options, PixelSize picture, SampleRandom& random) {
  const double area = static_cast<double>(picture.width) * static_cast<double>(picture.height);
  const double log_min = std::log(options.ratio_min);
  const double log_max = std::log(options.ratio_max);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * random.uniform(options.scale_min, options.scale_max);
    const double ratio = std::exp(random.uniform(log_min, log_max));
    const double width = round_half_even(std::sqrt(target * ratio));
    const double height = round_half_even(std::sqrt(target / ratio));
    if (width < 1 || width > picture.width || height < 1 || height > picture.height) continue;
    PixelBox box{0, 0, static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(height)};
    box.top = static_cast<std::uint32_t>(random.below(picture.height - box.height + 1ull));
    box.left = static_cast<std::uint32_t>(random.below(picture.width - box.width + 1ull));
    return box;
  }
  return centre_box(options, picture);
}

View choose_view(const ImageOptions& options, PixelSize picture, SampleRandom& random) {
  PixelBox source{0, 0, picture.width, picture.height};
  PixelSize resized{options.width, options.height};
  if (options.crop == ImageOptions::Crop::random_resized) {
    source = random_resized_box(options, picture, random);
  } else if (options.crop == ImageOptions::Crop::center) {
    resized = shorter_side_to(*options.resize, picture);
  }
  View view;
  view.x = {source.left,   source.width, resized.width, centred(resized.width, options.width),
            options.width, false};
  view.y = {source.top,     source.height, resized.height, centred(resized.height, options.height),
            options.height, false};
  view.x.mirrored = options.flip && random.uniform(0.0, 1.0) < 0.5;
  return view;
}

namespace {

// EXIF 2.32, tag 0x0112: shown pixel (x, y) is stored pixel (x, y), after mirroring
// what is mirrored and then exchanging x and y.
struct Turn {
  bool mirror_x;
  bool mirror_y;
  bool exchange;
};

constexpr std::array<Turn, 9> kTurns{{
    {false, false, false},  // 0 is no orientation
    {false, false, false},
    {true, false, false},
    {true, true, false},
    {false, true, false},
    {false, false, true},
    {true, false, true},
    {true, true, true},
    {false, true, true},
}};

const Turn& turn_of(int orientation) { return kTurns[static_cast<std::size_t>(orientation)]; }

AxisView mirror(const AxisView& view, std::uint32_t side) {
  return {side - view.first - view.length,
          view.length,
          view.resized,
          view.resized - view.cut_first - view.cut_count,
          view.cut_count,
          !view.mirrored};
}

}  // namespace

View stored_view(const View& view, PixelSize shown, int orientation) {
  const Turn& turn = turn_of(orientation);
  View stored = view;
  if (turn.mirror_x) stored.x = mirror(view.x, shown.width);
  if (turn.mirror_y) stored.y = mirror(view.y, shown.height);
  if (turn.exchange) std::swap(stored.x, stored.y);
  stored.transposed = turn.exchange;
  return stored;
}

PixelSize shown_size(PixelSize stored, int orientation) {
  if (turn_of(orientation).exchange) std::swap(stored.width, stored.height);
  return stored;
}

}  // namespace headpond::decode
