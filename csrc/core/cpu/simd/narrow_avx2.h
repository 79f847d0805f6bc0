// Primitives of aggregations over narrow rows on AVX2 with FMA; same contract as narrow_portable.h.
#pragma once

#include <cstring>

#include "core/cpu/simd/plain.h"
#include "core/cpu/simd/vectors_avx2.h"

namespace bitgnn::cpu::avx2 {

constexpr int kHalfLanes = 16;
constexpr int kNarrowVectors = 1;

struct HalfIntLanes {
  __m256i lo, hi;
};

inline HalfIntLanes half_ints(int32_t value) {
  return {_mm256_set1_epi32(value), _mm256_set1_epi32(value)};
}

inline HalfIntLanes load_integers(const int8_t* row) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row));
  return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes))};
}
inline HalfIntLanes load_integers(const int16_t* row) {
  const __m128i* shorts = reinterpret_cast<const __m128i*>(row);
  return {_mm256_cvtepi16_epi32(_mm_loadu_si128(shorts)),
          _mm256_cvtepi16_epi32(_mm_loadu_si128(shorts + 1))};
}
inline HalfLanes load_words(const float* const (&rows)[2]) {
  return {_mm256_loadu_ps(rows[0]), _mm256_loadu_ps(rows[1])};
}
inline HalfLanes load_words(const float* const (&rows)[4]) {
  return {_mm256_loadu2_m128(rows[1], rows[0]), _mm256_loadu2_m128(rows[3], rows[2])};
}
template <int E>
inline HalfIntLanes load_words(const int32_t* const (&rows)[E]) {
  const float* words[E];
  for (int e = 0; e < E; ++e) words[e] = reinterpret_cast<const float*>(rows[e]);
  const HalfLanes loaded = load_words(words);
  return {_mm256_castps_si256(loaded.lo), _mm256_castps_si256(loaded.hi)};
}
template <int E>
inline HalfLanes spread_last(const HalfLanes& a) {
  if constexpr (E == 4) {
    return {_mm256_permute_ps(a.lo, 0xFF), _mm256_permute_ps(a.hi, 0xFF)};
  } else {
    const __m256i last = _mm256_set1_epi32(7);
    return {_mm256_permutevar8x32_ps(a.lo, last), _mm256_permutevar8x32_ps(a.hi, last)};
  }
}
template <int E>
inline HalfLanes with_last_one(const HalfLanes& a) {
  constexpr int kLast = E == 4 ? 0x88 : 0x80;
  const __m256 one = _mm256_set1_ps(1.0f);
  return {_mm256_blend_ps(a.lo, one, kLast), _mm256_blend_ps(a.hi, one, kLast)};
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

}  // namespace bitgnn::cpu::avx2
