#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "decode/half.h"
#include "headpond/field.h"

namespace headpond::decode {

// Element types whose bits are not a C++ arithmetic type, or mean something else.
struct Bool {
  std::uint8_t bits;
};
struct Half {
  std::uint16_t bits;
};
struct BFloat {
  std::uint16_t bits;
};

template <class T>
auto to_number(T value) {
  if constexpr (std::is_same_v<T, Bool>)
    return static_cast<std::uint8_t>(value.bits != 0);
  else if constexpr (std::is_same_v<T, Half>)
    return half_to_float(value.bits);
  else if constexpr (std::is_same_v<T, BFloat>)
    return bfloat16_to_float(value.bits);
  else
    return value;
}

// Out of range, a float becomes the nearest integer there is, NaN 0: C++ leaves it undefined.
template <std::integral To, std::floating_point From>
To saturate(From value) {
  constexpr auto kLow = static_cast<From>(std::numeric_limits<To>::min());
  constexpr auto kHigh = static_cast<From>(std::numeric_limits<To>::max());
  if (std::isnan(value)) return 0;
  if (value <= kLow) return std::numeric_limits<To>::min();
  if (value >= kHigh) return std::numeric_limits<To>::max();
  return static_cast<To>(value);
}

template <class To, class From>
To from_number(From value) {
  if constexpr (std::is_same_v<To, Bool>)
    return {static_cast<std::uint8_t>(value != 0)};
  else if constexpr (std::is_same_v<To, Half>)
    return {float_to_half(static_cast<float>(value))};
  else if constexpr (std::is_same_v<To, BFloat>)
    return {float_to_bfloat16(static_cast<float>(value))};
  else if constexpr (std::integral<To> && std::floating_point<From>)
    return saturate<To>(value);
  else
    return static_cast<To>(value);
}

// Calls `visit` with a null pointer of the element type; not for `bytes`.
template <class Visit>
auto with_type(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::boolean:
      return visit(static_cast<Bool*>(nullptr));
    case DType::int8:
      return visit(static_cast<std::int8_t*>(nullptr));
    case DType::int16:
      return visit(static_cast<std::int16_t*>(nullptr));
    case DType::uint16:
      return visit(static_cast<std::uint16_t*>(nullptr));
    case DType::int32:
      return visit(static_cast<std::int32_t*>(nullptr));
    case DType::uint32:
      return visit(static_cast<std::uint32_t*>(nullptr));
    case DType::int64:
      return visit(static_cast<std::int64_t*>(nullptr));
    case DType::uint64:
      return visit(static_cast<std::uint64_t*>(nullptr));
    case DType::float16:
      return visit(static_cast<Half*>(nullptr));
    case DType::bfloat16:
      return visit(static_cast<BFloat*>(nullptr));
    case DType::float32:
      return visit(static_cast<float*>(nullptr));
    case DType::float64:
      return visit(static_cast<double*>(nullptr));
    case DType::bytes:
    case DType::uint8:
      break;
  }
  return visit(static_cast<std::uint8_t*>(nullptr));
}

}  // namespace headpond::decode
