#include "decode/resize.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

// Compiled for any x86-64; only these functions use AVX2, after a check at run time.
#define HEADPOND_AVX2 __attribute__((target("avx2")))

namespace headpond::decode {
namespace {

HEADPOND_AVX2 inline __m256i load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

HEADPOND_AVX2 inline __m256i weight_pair(const std::int16_t* weights) {
  std::int32_t pair;
  std::memcpy(&pair, weights, sizeof pair);
  return _mm256_set1_epi32(pair);
}

// 32 bytes a step: bytes of two rows are paired, so that one madd multiplies and
// adds two taps exactly.
template <std::uint32_t kTaps>
HEADPOND_AVX2 inline void vertical_taps(const std::uint8_t* const* rows,
                                        const std::int16_t* weights, std::uint32_t taps,
                                        std::size_t bytes, std::int16_t* words) {
  constexpr int kShift = kWeightBits - kWordBits;
  const __m256i zero = _mm256_setzero_si256();
  const __m256i half = _mm256_set1_epi32(1 << (kShift - 1));
  if (kTaps != 0) taps = kTaps;
  for (std::size_t i = 0; i < bytes; i += 32) {
    __m256i a = half, b = half, c = half, d = half;
    for (std::uint32_t t = 0; t < taps; t += 2) {
      const __m256i upper = load(rows[t] + i);
      const __m256i lower = load(rows[t + 1] + i);
      const __m256i weight = weight_pair(weights + t);
      const __m256i first = _mm256_unpacklo_epi8(upper, lower);
      const __m256i second = _mm256_unpackhi_epi8(upper, lower);
      a = _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_unpacklo_epi8(first, zero), weight));
      b = _mm256_add_epi32(b, _mm256_madd_epi16(_mm256_unpackhi_epi8(first, zero), weight));
      c = _mm256_add_epi32(c, _mm256_madd_epi16(_mm256_unpacklo_epi8(second, zero), weight));
      d = _mm256_add_epi32(d, _mm256_madd_epi16(_mm256_unpackhi_epi8(second, zero), weight));
    }
    const __m256i even =
        _mm256_packs_epi32(_mm256_srai_epi32(a, kShift), _mm256_srai_epi32(b, kShift));
    const __m256i odd =
        _mm256_packs_epi32(_mm256_srai_epi32(c, kShift), _mm256_srai_epi32(d, kShift));
    auto* out = reinterpret_cast<__m256i*>(words + i);
    _mm256_storeu_si256(out, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
}

HEADPOND_AVX2 void vertical(const std::uint8_t* const* rows, const std::int16_t* weights,
                            std::uint32_t taps, std::size_t bytes, std::int16_t* words) {
  switch (taps) {
    case 2:
      return vertical_taps<2>(rows, weights, taps, bytes, words);
    case 4:
      return vertical_taps<4>(rows, weights, taps, bytes, words);
    default:
      return vertical_taps<0>(rows, weights, taps, bytes, words);
  }
}

// Two result pixels, one in each half: the words of two neighbouring source pixels
// are paired by channel, so that one madd takes two taps of all channels.
template <std::uint32_t kTaps>
HEADPOND_AVX2 inline __m256i two_pixels(const std::int16_t* words, const Axis& axis,
                                        std::size_t x) {
  const __m256i pairs = _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15,  //
                                         0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
  constexpr int kShift = kWeightBits + kWordBits;
  const std::uint32_t taps = kTaps != 0 ? kTaps : axis.taps;
  const std::int16_t* left = words + std::size_t{axis.starts[x]} * 4;
  const std::int16_t* right = words + std::size_t{axis.starts[x + 1]} * 4;
  const std::int16_t* left_weights = axis.weights.data() + x * taps;
  const std::int16_t* right_weights = left_weights + taps;
  __m256i sum = _mm256_set1_epi32(1 << (kShift - 1));
  for (std::uint32_t t = 0; t < taps; t += 2) {
    const __m256i source = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(left + t * 4))),
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(right + t * 4)), 1);
    const __m256i weight =
        _mm256_blend_epi32(weight_pair(left_weights + t), weight_pair(right_weights + t), 0xF0);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_shuffle_epi8(source, pairs), weight));
  }
  return _mm256_srai_epi32(sum, kShift);
}

template <std::uint32_t kTaps>
HEADPOND_AVX2 inline std::size_t horizontal_taps(const std::int16_t* words, const Axis& axis,
                                                 std::uint8_t* pixels) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 0, 0, 0, 0);
  std::size_t x = 0;
  for (; x + 4 <= axis.starts.size(); x += 4) {
    const __m256i packed = _mm256_packs_epi32(two_pixels<kTaps>(words, axis, x),
                                              two_pixels<kTaps>(words, axis, x + 2));
    const __m256i bytes = _mm256_packus_epi16(packed, packed);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(pixels + x * 4),
                     _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(bytes, order)));
  }
  return x;
}

HEADPOND_AVX2 void horizontal(const std::int16_t* words, const Axis& axis, std::uint8_t* pixels) {
  std::size_t done = 0;
  switch (axis.taps) {
    case 2:
      done = horizontal_taps<2>(words, axis, pixels);
      break;
    case 4:
      done = horizontal_taps<4>(words, axis, pixels);
      break;
    default:
      done = horizontal_taps<0>(words, axis, pixels);
      break;
  }
  Axis rest = axis;
  rest.starts = axis.starts.subspan(done);
  rest.weights = axis.weights.subspan(done * axis.taps);
  scalar_kernels().horizontal(words, rest, pixels + done * 4);
}

HEADPOND_AVX2 void pack_rgb(const std::uint8_t* pixels, std::size_t count, std::uint8_t* rgb) {
  const __m128i order = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  std::size_t x = 0;
  // Each store is four bytes too long; the next one, or the scalar end, overwrites them.
  for (; x + 6 <= count; x += 4) {
    const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels + x * 4));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(rgb + x * 3), _mm_shuffle_epi8(four, order));
  }
  scalar_kernels().pack_rgb(pixels + x * 4, count - x, rgb + x * 3);
}

constexpr ResizeKernels kKernels{vertical, horizontal, pack_rgb};

}  // namespace

const ResizeKernels* avx2_kernels() { return __builtin_cpu_supports("avx2") ? &kKernels : nullptr; }

}  // namespace headpond::decode

#else

namespace headpond::decode {

const ResizeKernels* avx2_kernels() { return nullptr; }

}  // namespace headpond::decode

#endif
