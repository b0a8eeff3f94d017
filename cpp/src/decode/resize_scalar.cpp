#include "decode/resize.h"

namespace headpond::decode {
namespace {

void vertical(const std::uint8_t* const* rows, const std::int16_t* weights, std::uint32_t taps,
              std::size_t bytes, std::int16_t* words) {
  constexpr int kShift = kWeightBits - kWordBits;
  for (std::size_t i = 0; i < bytes; ++i) {
    std::int32_t sum = 1 << (kShift - 1);
    for (std::uint32_t t = 0; t < taps; ++t) sum += rows[t][i] * weights[t];
    words[i] = static_cast<std::int16_t>(sum >> kShift);
  }
}

void horizontal(const std::int16_t* words, const Axis& axis, std::uint8_t* pixels) {
  constexpr int kShift = kWeightBits + kWordBits;
  for (std::size_t x = 0; x < axis.starts.size(); ++x) {
    const std::int16_t* source = words + std::size_t{axis.starts[x]} * 4;
    const std::int16_t* weights = axis.weights.data() + x * axis.taps;
    for (std::size_t c = 0; c < 4; ++c) {
      std::int32_t sum = 1 << (kShift - 1);
      for (std::uint32_t t = 0; t < axis.taps; ++t) sum += source[t * 4 + c] * weights[t];
      pixels[x * 4 + c] = static_cast<std::uint8_t>(sum >> kShift);
    }
  }
}

void pack_rgb(const std::uint8_t* pixels, std::size_t count, std::uint8_t* rgb) {
  for (std::size_t x = 0; x < count; ++x) {
    rgb[x * 3] = pixels[x * 4];
    rgb[x * 3 + 1] = pixels[x * 4 + 1];
    rgb[x * 3 + 2] = pixels[x * 4 + 2];
  }
}

constexpr ResizeKernels kKernels{vertical, horizontal, pack_rgb};

}  // namespace

const ResizeKernels& scalar_kernels() { return kKernels; }

}  // namespace headpond::decode
