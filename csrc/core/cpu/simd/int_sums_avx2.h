// Sums of 32 integers kept as int16 or int32 on AVX2; same contract as int_sums_portable.h.
#pragma once

#include "core/cpu/simd/vectors_avx2.h"

namespace bitgnn::cpu::avx2 {

inline IntLanes add(const IntLanes& a, const IntLanes& b) {
  IntLanes r;
  for (int i = 0; i < 4; ++i) r.v[i] = _mm256_add_epi32(a.v[i], b.v[i]);
  return r;
}
inline IntLanes widen(const int16_t* p) {
  IntLanes r;
  for (int i = 0; i < 4; ++i)
    r.v[i] = _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8 * i)));
  return r;
}
inline void narrow(int16_t* p, const IntLanes& a) {
  for (int i = 0; i < 4; i += 2) {
    // Packing works on halves of vectors and leaves the middle quarters swapped.
    const __m256i v = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.v[i], a.v[i + 1]), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8 * i), v);
  }
}
inline IntLanes load_some_ints(const int32_t* p, int64_t count) {
  if (count >= kWordBits) return load_ints(p);
  int32_t some[kWordBits] = {};
  std::memcpy(some, p, static_cast<size_t>(count) * sizeof(int32_t));
  return load_ints(some);
}
inline IntLanes load_some_ints(const int16_t* p, int64_t count) {
  if (count >= kWordBits) return widen(p);
  int16_t some[kWordBits] = {};
  std::memcpy(some, p, static_cast<size_t>(count) * sizeof(int16_t));
  return widen(some);
}
inline void store_some_ints(int32_t* p, const IntLanes& a, int64_t count) {
  if (count >= kWordBits) return store_ints(p, a);
  int32_t all[kWordBits];
  store_ints(all, a);
  std::memcpy(p, all, static_cast<size_t>(count) * sizeof(int32_t));
}
inline void store_some_ints(int16_t* p, const IntLanes& a, int64_t count) {
  if (count >= kWordBits) return narrow(p, a);
  int16_t all[kWordBits];
  narrow(all, a);
  std::memcpy(p, all, static_cast<size_t>(count) * sizeof(int16_t));
}

}  // namespace bitgnn::cpu::avx2
