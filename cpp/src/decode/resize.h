#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headpond/decoder.h"

namespace headpond::decode {

// Antialiased bilinear resize as PIL's (triangle filter, support scaled when
// shrinking), in 16-bit fixed point: rows first (bytes to words of 1/128 grey
// level), then columns. Pixels are four bytes: R, G, B and one that is ignored.

// Where one axis of the result comes from. `first`, `last`: the box within the
// source, in source pixels; it may be fractional after a DCT-scaled decode, and no
// pixel outside [floor(first), ceil(last)) is used.
struct AxisRequest {
  double first = 0;
  double last = 0;
  std::uint32_t resized = 0;    // the box becomes this many pixels,
  std::uint32_t cut_first = 0;  // of which these are wanted,
  std::uint32_t cut_count = 0;
  bool mirrored = false;  // in the opposite order.
};

// Result pixel i is the sum over t < taps of weights[i * taps + t] / 16384 times
// source pixel begin + starts[i] + t; `taps` is even, spare taps weigh nothing and
// may lie past `end`. All source pixels with weight lie in [begin, end).
struct Axis {
  std::span<std::uint32_t> starts;
  std::span<std::int16_t> weights;
  std::uint32_t taps = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

inline constexpr int kWeightBits = 14;  // so that the weight 1 fits 16 bits
inline constexpr int kWordBits = 7;     // fraction of the words between the passes

// Two slots of `scratch` from `slot` on hold the result.
Axis plan_axis(const AxisRequest& request, Scratch& scratch, std::size_t slot);

// The inner loops, once per instruction set; all give the same bytes.
struct ResizeKernels {
  // words[i] = sum of rows[t][i] * weights[t], for i < bytes. Reads and writes up
  // to kSlackBytes elements past `bytes`.
  void (*vertical)(const std::uint8_t* const* rows, const std::int16_t* weights, std::uint32_t taps,
                   std::size_t bytes, std::int16_t* words);
  // One row of pixels from one row of words that starts at axis.begin. Reads `taps`
  // pixels from each start on; writes exactly the pixels.
  void (*horizontal)(const std::int16_t* words, const Axis& axis, std::uint8_t* pixels);
  // Drops the fourth byte; writes exactly 3 * count bytes.
  void (*pack_rgb)(const std::uint8_t* pixels, std::size_t count, std::uint8_t* rgb);
};

inline constexpr std::size_t kSlackBytes = 64;

const ResizeKernels& scalar_kernels();
const ResizeKernels* avx2_kernels();  // null where this CPU or build has none
const ResizeKernels& best_kernels();

}  // namespace headpond::decode
