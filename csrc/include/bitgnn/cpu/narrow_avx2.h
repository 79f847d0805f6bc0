// Primitives of aggregations over narrow rows on AVX2 with FMA; same contract as narrow_portable.h.
#pragma once

#include <cstring>

#include "bitgnn/cpu/simd_avx2.h"

namespace bitgnn::cpu::avx2 {

constexpr int kHalfLanes = 16;
constexpr int kNarrowVectors = 1;

struct HalfIntLanes {
  __m256i lo, hi;
};

inline HalfIntLanes half_ints(int32_t value) {
  return {_mm256_set1_epi32(value), _mm256_set1_epi32(value)};
}

inline __m256i widen_eight(__m128i bytes, const int8_t*) { return _mm256_cvtepi8_epi32(bytes); }
inline __m256i widen_eight(__m128i shorts, const int16_t*) { return _mm256_cvtepi16_epi32(shorts); }
// Eight integers of one row, or four of each of two.
template <class T>
inline __m256i load_eight_ints(const T* a) {
  const __m128i raw = sizeof(T) == 1 ? _mm_loadl_epi64(reinterpret_cast<const __m128i*>(a))
                                     : _mm_loadu_si128(reinterpret_cast<const __m128i*>(a));
  return widen_eight(raw, a);
}
inline __m256i load_eight_ints(const int8_t* a, const int8_t* b) {
  int32_t first, second;
  std::memcpy(&first, a, sizeof(first));
  std::memcpy(&second, b, sizeof(second));
  return widen_eight(_mm_insert_epi32(_mm_cvtsi32_si128(first), second, 1), a);
}
inline __m256i load_eight_ints(const int16_t* a, const int16_t* b) {
  const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(a));
  const __m128i second = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(b));
  return widen_eight(_mm_unpacklo_epi64(first, second), a);
}

template <class T>
inline HalfIntLanes load_rows(const T* const (&rows)[1]) {
  return {load_eight_ints(rows[0]), load_eight_ints(rows[0] + 8)};
}
template <class T>
inline HalfIntLanes load_rows(const T* const (&rows)[2]) {
  return {load_eight_ints(rows[0]), load_eight_ints(rows[1])};
}
template <class T>
inline HalfIntLanes load_rows(const T* const (&rows)[4]) {
  return {load_eight_ints(rows[0], rows[1]), load_eight_ints(rows[2], rows[3])};
}
inline HalfLanes spread(const float (&f)[1]) { return half_lanes(f[0]); }
inline HalfLanes spread(const float (&f)[2]) {
  return {_mm256_set1_ps(f[0]), _mm256_set1_ps(f[1])};
}
inline HalfLanes spread(const float (&f)[4]) {
  return {_mm256_setr_m128(_mm_set1_ps(f[0]), _mm_set1_ps(f[1])),
          _mm256_setr_m128(_mm_set1_ps(f[2]), _mm_set1_ps(f[3]))};
}
inline HalfLanes to_half_lanes(const HalfIntLanes& a) {
  return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}
inline HalfIntLanes add(const HalfIntLanes& a, const HalfIntLanes& b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
inline HalfLanes multiply_add(const HalfLanes& a, const HalfLanes& b, const HalfLanes& c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
template <int N>
inline HalfLanes fold(const HalfLanes& a) {
  if constexpr (N == 8) {
    return {_mm256_add_ps(a.lo, a.hi), a.hi};
  } else {
    return {_mm256_add_ps(a.lo, _mm256_permute2f128_ps(a.lo, a.lo, 1)), a.hi};
  }
}
template <int N>
inline HalfIntLanes fold(const HalfIntLanes& a) {
  if constexpr (N == 8) {
    return {_mm256_add_epi32(a.lo, a.hi), a.hi};
  } else {
    return {_mm256_add_epi32(a.lo, _mm256_permute2x128_si256(a.lo, a.lo, 1)), a.hi};
  }
}
inline void store_half(float* p, const HalfLanes& a, int64_t count) {
  alignas(32) float v[kHalfLanes];
  _mm256_store_ps(v, a.lo);
  _mm256_store_ps(v + 8, a.hi);
  std::memcpy(p, v, static_cast<size_t>(count) * sizeof(float));
}

struct EightCounts {
  uint64_t v[8];
};

inline EightCounts zero_counts() { return {}; }
inline void count_differences(EightCounts& counts, uint64_t x, const uint64_t* w) {
  for (int l = 0; l < 8; ++l) counts.v[l] += static_cast<uint64_t>(__builtin_popcountll(x ^ w[l]));
}
template <int N, class T>
inline void store_halves(T* p, const EightCounts& counts, int64_t size) {
  for (int l = 0; l < N; ++l)
    p[l] = static_cast<T>((size - 2 * static_cast<int64_t>(counts.v[l])) >> 1);
}

}  // namespace bitgnn::cpu::avx2
