// 8-bit codes of floats in plain C++.
#pragma once

#include "core/cpu/simd/vectors_portable.h"
#include "int8/arguments.h"

namespace bitgnn::cpu::portable {

// Writes 32 codes clamp(rint(v), -127, 127), NaN as 0. Adding 1.5 * 2^23 leaves the integer, ties
// to even, in the low bits of a float of magnitude up to 2^22.
inline void store_codes(int8_t* p, const Lanes& a) {
  constexpr float kShift = 12582912.0f;
  for (int64_t l = 0; l < kWordBits; ++l) {
    const float v = a.v[l] == a.v[l] ? a.v[l] : 0.0f;
    const float low = v < -kLargestCode ? -float{kLargestCode} : v;
    const float shifted = (low > kLargestCode ? float{kLargestCode} : low) + kShift;
    int32_t bits;
    std::memcpy(&bits, &shifted, sizeof(bits));
    p[l] = static_cast<int8_t>(bits);  // bits of the shift end in zeros
  }
}

inline uint32_t ge_mask(const IntLanes& a, const IntLanes& b) {
  uint32_t bits = 0;
  for (int l = 0; l < kWordBits; ++l) bits |= static_cast<uint32_t>(a.v[l] >= b.v[l]) << l;
  return bits;
}

}  // namespace bitgnn::cpu::portable
