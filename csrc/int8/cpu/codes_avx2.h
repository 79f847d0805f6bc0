// 8-bit codes of floats on AVX2; same contract as codes_portable.h.
#pragma once

#include "core/cpu/simd/vectors_avx2.h"
#include "int8/arguments.h"

namespace bitgnn::cpu::avx2 {

inline void store_codes(int8_t* p, const Lanes& a) {
  const __m256 largest = _mm256_set1_ps(kLargestCode), least = _mm256_set1_ps(-kLargestCode);
  __m256i v[4];
  for (int i = 0; i < 4; ++i) {
    const __m256 number = _mm256_and_ps(a.v[i], _mm256_cmp_ps(a.v[i], a.v[i], _CMP_ORD_Q));
    v[i] = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(number, least), largest));
  }
  // Packing works on halves, which leaves fours of codes to be put in order.
  const __m256i codes =
      _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permutevar8x32_epi32(codes, order));
}

inline uint32_t ge_mask(const IntLanes& a, const IntLanes& b) {
  uint32_t less = 0;
  for (int i = 0; i < 4; ++i) {
    const __m256 lanes = _mm256_castsi256_ps(_mm256_cmpgt_epi32(b.v[i], a.v[i]));
    less |= static_cast<uint32_t>(_mm256_movemask_ps(lanes)) << (8 * i);
  }
  return ~less;
}

}  // namespace bitgnn::cpu::avx2
