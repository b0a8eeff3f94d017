#include "decode/resize.h"

#include <algorithm>
#include <cmath>

namespace headpond::decode {
namespace {

struct Window {
  std::uint32_t start;
  std::uint32_t count;
};

// The arithmetic of PIL's precompute_coeffs.
class Triangle {
 public:
  explicit Triangle(const AxisRequest& request)
      : low_(std::floor(request.first)),
        high_(std::ceil(request.last)),
        first_(request.first),
        scale_((request.last - request.first) / request.resized),
        filter_scale_(std::max(scale_, 1.0)) {}

  double centre(std::uint32_t i) const { return first_ + (i + 0.5) * scale_; }

  Window window(std::uint32_t i) const {
    const double begin = std::max(std::trunc(centre(i) - filter_scale_ + 0.5), low_);
    const double end = std::min(std::trunc(centre(i) + filter_scale_ + 0.5), high_);
    return {static_cast<std::uint32_t>(begin),
            static_cast<std::uint32_t>(std::max(end - begin, 1.0))};
  }

  // Weights of a window as integers that add up to exactly 1 << kWeightBits: a flat
  // picture stays flat, and no sum leaves its range.
  void weigh(std::uint32_t i, Window window, std::span<std::int16_t> weights) const {
    const double inverse = 1.0 / filter_scale_;
    const double offset = window.start + 0.5 - centre(i);
    const auto at = [&](std::uint32_t t) {
      return std::max(0.0, 1.0 - std::abs((t + offset) * inverse));
    };
    double sum = 0;
    for (std::uint32_t t = 0; t < window.count; ++t) sum += at(t);
    const double unit = sum > 0 ? (1 << kWeightBits) / sum : 0;
    int left = 1 << kWeightBits;
    std::uint32_t largest = 0;
    for (std::uint32_t t = 0; t < window.count; ++t) {
      weights[t] = static_cast<std::int16_t>(at(t) * unit + 0.5);
      left -= weights[t];
      if (weights[t] > weights[largest]) largest = t;
    }
    std::fill(weights.begin() + window.count, weights.end(), std::int16_t{0});
    spread(left, largest, window.count, weights);
  }

 private:
  // The rounding error goes to the largest weight; many taps share it, so that none
  // becomes negative.
  static void spread(int left, std::uint32_t largest, std::uint32_t count,
                     std::span<std::int16_t> weights) {
    const int step = left > 0 ? 1 : -1;
    std::uint32_t t = largest;
    if (std::abs(left) <= 4 && weights[t] + left >= 0) {
      weights[t] = static_cast<std::int16_t>(weights[t] + left);
      return;
    }
    for (; left != 0; t = (t + 1) % count) {
      if (weights[t] + step < 0) continue;
      weights[t] = static_cast<std::int16_t>(weights[t] + step);
      left -= step;
    }
  }

  double low_, high_, first_, scale_, filter_scale_;
};

template <class T>
std::span<T> array_of(Scratch& scratch, std::size_t slot, std::size_t count) {
  return {reinterpret_cast<T*>(scratch.get(slot, count * sizeof(T)).data()), count};
}

}  // namespace

Axis plan_axis(const AxisRequest& request, Scratch& scratch, std::size_t slot) {
  const Triangle triangle(request);
  Axis axis;
  std::uint32_t taps = 1;
  axis.begin = 0xFFFFFFFF;
  for (std::uint32_t i = 0; i < request.cut_count; ++i) {
    const Window window = triangle.window(request.cut_first + i);
    taps = std::max(taps, window.count);
    axis.begin = std::min(axis.begin, window.start);
    axis.end = std::max(axis.end, window.start + window.count);
  }
  axis.taps = (taps + 1) / 2 * 2;
  axis.starts = array_of<std::uint32_t>(scratch, slot, request.cut_count);
  axis.weights =
      array_of<std::int16_t>(scratch, slot + 1, std::size_t{request.cut_count} * axis.taps);
  for (std::uint32_t i = 0; i < request.cut_count; ++i) {
    const std::uint32_t at = request.mirrored ? request.cut_count - 1 - i : i;
    const Window window = triangle.window(request.cut_first + i);
    axis.starts[at] = window.start - axis.begin;
    triangle.weigh(request.cut_first + i, window,
                   axis.weights.subspan(std::size_t{at} * axis.taps, axis.taps));
  }
  return axis;
}

const ResizeKernels& best_kernels() {
  const ResizeKernels* avx2 = avx2_kernels();
  return avx2 != nullptr ? *avx2 : scalar_kernels();
}

}  // namespace headpond::decode
