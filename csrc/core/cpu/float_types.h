// Element types of float rows: 16-bit formats as raw bits, and their conversion to float32.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/common.h"

namespace bitgnn::cpu {

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

inline float float_from_bits(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof(f));
  return f;
}

inline float to_float(float x) { return x; }
inline float to_float(uint8_t x) { return static_cast<float>(x); }
inline float to_float(double x) { return static_cast<float>(x); }
inline float to_float(BFloat16 x) { return float_from_bits(static_cast<uint32_t>(x.bits) << 16); }
// Moves exponent and mantissa into place and corrects the bias by an exact multiplication, which
// also normalises subnormals; what lands at 2^16 or above was infinity or NaN.
inline float to_float(Half x) {
  const float scaled = float_from_bits((x.bits & 0x7fffu) << 13) * float_from_bits(0x77800000u);
  uint32_t bits;
  std::memcpy(&bits, &scaled, sizeof(bits));
  if (scaled >= 65536.0f) bits |= 0x7f800000u;
  return float_from_bits(bits | (static_cast<uint32_t>(x.bits & 0x8000u) << 16));
}

template <class T>
constexpr FloatType float_type = FloatType::kFloat32;
template <>
constexpr FloatType float_type<double> = FloatType::kFloat64;
template <>
constexpr FloatType float_type<Half> = FloatType::kFloat16;
template <>
constexpr FloatType float_type<BFloat16> = FloatType::kBFloat16;
template <>
constexpr FloatType float_type<uint8_t> = FloatType::kUInt8;

// Calls f with a zero of the element type, which is one of the list.
template <class First, class... Others, class F>
void with_type_of(FloatType type, const F& f) {
  if constexpr (sizeof...(Others) > 0)
    if (type != float_type<First>) return with_type_of<Others...>(type, f);
  f(First{});
}
template <class F>
void with_float_type(FloatType type, const F& f) {
  with_type_of<float, double, Half, BFloat16, uint8_t>(type, f);
}

}  // namespace bitgnn::cpu
