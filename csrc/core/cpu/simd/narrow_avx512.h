// Primitives of aggregations over narrow rows on AVX-512; same contract as narrow_portable.h.
#pragma once

#include <cstring>

#include "core/cpu/simd/vectors_avx512.h"

namespace bitgnn::cpu::avx512 {

constexpr int kHalfLanes = 16;
constexpr int kNarrowVectors = 3;  // times eight slots, with registers left for gathered data

struct HalfIntLanes {
  __m512i v;
};

inline HalfIntLanes half_ints(int32_t value) { return {_mm512_set1_epi32(value)}; }

inline HalfIntLanes load_integers(const int8_t* row) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row)))};
}
inline HalfIntLanes load_integers(const int16_t* row) {
  return {_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row)))};
}
inline HalfLanes load_words(const float* const (&rows)[2]) {
  return {_mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(rows[0])),
                             _mm256_loadu_ps(rows[1]), 1)};
}
inline HalfLanes load_words(const float* const (&rows)[4]) {
  __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(rows[0]));
  v = _mm512_insertf32x4(v, _mm_loadu_ps(rows[1]), 1);
  v = _mm512_insertf32x4(v, _mm_loadu_ps(rows[2]), 2);
  return {_mm512_insertf32x4(v, _mm_loadu_ps(rows[3]), 3)};
}
template <int E>
inline HalfIntLanes load_words(const int32_t* const (&rows)[E]) {
  const float* words[E];
  for (int e = 0; e < E; ++e) words[e] = reinterpret_cast<const float*>(rows[e]);
  return {_mm512_castps_si512(load_words(words).v)};
}
template <int E>
inline HalfLanes spread_last(HalfLanes a) {
  if constexpr (E == 4) {
    return {_mm512_permute_ps(a.v, 0xFF)};
  } else {
    const __m512i last = _mm512_setr_epi32(7, 7, 7, 7, 7, 7, 7, 7, 15, 15, 15, 15, 15, 15, 15, 15);
    return {_mm512_permutexvar_ps(last, a.v)};
  }
}
template <int E>
inline HalfLanes with_last_one(HalfLanes a) {
  return {_mm512_mask_blend_ps(E == 4 ? 0x8888 : 0x8080, a.v, _mm512_set1_ps(1.0f))};
}
inline HalfLanes to_half_lanes(HalfIntLanes a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline HalfIntLanes add(HalfIntLanes a, HalfIntLanes b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline HalfLanes multiply_add(HalfLanes a, HalfLanes b, HalfLanes c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
template <int N>
inline HalfLanes fold(HalfLanes a) {
  return {_mm512_add_ps(a.v, _mm512_shuffle_f32x4(a.v, a.v, N == 8 ? 0xEE : 0x55))};
}
template <int N>
inline HalfIntLanes fold(HalfIntLanes a) {
  return {_mm512_add_epi32(a.v, _mm512_shuffle_i32x4(a.v, a.v, N == 8 ? 0xEE : 0x55))};
}
inline void store_half(float* p, HalfLanes a, int64_t count) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1u), a.v);
}

struct EightCounts {
  __m512i v;
};

inline EightCounts zero_counts() { return {_mm512_setzero_si512()}; }
inline void count_differences(EightCounts& counts, uint64_t x, const uint64_t* w) {
  const __m512i differences =
      _mm512_xor_si512(_mm512_set1_epi64(static_cast<int64_t>(x)), _mm512_loadu_si512(w));
  counts.v = _mm512_add_epi64(counts.v, _mm512_popcnt_epi64(differences));
}
inline __m512i halves_of(const EightCounts& counts, int64_t size) {
  const __m512i twice = _mm512_slli_epi64(counts.v, 1);
  return _mm512_srai_epi64(_mm512_sub_epi64(_mm512_set1_epi64(size), twice), 1);
}
template <int N>
inline void store_halves(int32_t* p, const EightCounts& counts, int64_t size) {
  const __m256i halves = _mm512_cvtepi64_epi32(halves_of(counts, size));
  if constexpr (N == 4) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(halves));
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), halves);
  }
}
template <int N>
inline void store_halves(float* p, const EightCounts& counts, int64_t size) {
  const __m256 halves = _mm512_cvtepi64_ps(halves_of(counts, size));
  if constexpr (N == 4) {
    _mm_storeu_ps(p, _mm256_castps256_ps128(halves));
  } else {
    _mm256_storeu_ps(p, halves);
  }
}

}  // namespace bitgnn::cpu::avx512
