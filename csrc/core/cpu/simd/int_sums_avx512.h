// Sums of 32 integers kept as int16 or int32 on AVX-512; same contract as int_sums_portable.h.
#pragma once

#include "core/cpu/simd/vectors_avx512.h"

namespace bitgnn::cpu::avx512 {

inline uint32_t first_lanes(int64_t count) {
  return count >= kWordBits ? 0xffffffffu : (1u << count) - 1u;
}
inline IntLanes add(const IntLanes& a, const IntLanes& b) {
  return {_mm512_add_epi32(a.lo, b.lo), _mm512_add_epi32(a.hi, b.hi)};
}
inline IntLanes load_some_ints(const int32_t* p, int64_t count) {
  const uint32_t mask = first_lanes(count);
  return {_mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask), p),
          _mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask >> 16), p + 16)};
}
inline IntLanes load_some_ints(const int16_t* p, int64_t count) {
  const __m512i v = _mm512_maskz_loadu_epi16(first_lanes(count), p);
  return {_mm512_cvtepi16_epi32(_mm512_castsi512_si256(v)),
          _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(v, 1))};
}
inline void store_some_ints(int32_t* p, const IntLanes& a, int64_t count) {
  const uint32_t mask = first_lanes(count);
  _mm512_mask_storeu_epi32(p, static_cast<__mmask16>(mask), a.lo);
  _mm512_mask_storeu_epi32(p + 16, static_cast<__mmask16>(mask >> 16), a.hi);
}
inline void store_some_ints(int16_t* p, const IntLanes& a, int64_t count) {
  const __m512i v = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtsepi32_epi16(a.lo)),
                                       _mm512_cvtsepi32_epi16(a.hi), 1);
  _mm512_mask_storeu_epi16(p, first_lanes(count), v);
}

}  // namespace bitgnn::cpu::avx512
