// Primitives of aggregations over narrow rows on AVX-512; same contract as narrow_portable.h.
#pragma once

#include <cstring>

#include "bitgnn/cpu/simd_avx512.h"

namespace bitgnn::cpu::avx512 {

constexpr int kHalfLanes = 16;
constexpr int kNarrowVectors = 3;  // times eight slots, with room for what is gathered

struct HalfIntLanes {
  __m512i v;
};

inline HalfIntLanes half_ints(int32_t value) { return {_mm512_set1_epi32(value)}; }

inline HalfIntLanes load_rows(const int8_t* const (&rows)[1]) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[0])))};
}
inline HalfIntLanes load_rows(const int8_t* const (&rows)[2]) {
  const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(rows[0]));
  const __m128i second = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(rows[1]));
  return {_mm512_cvtepi8_epi32(_mm_unpacklo_epi64(first, second))};
}
inline HalfIntLanes load_rows(const int8_t* const (&rows)[4]) {
  int32_t part[4];
  for (int e = 0; e < 4; ++e) std::memcpy(part + e, rows[e], sizeof(part[e]));
  return {_mm512_cvtepi8_epi32(_mm_setr_epi32(part[0], part[1], part[2], part[3]))};
}
inline HalfIntLanes load_rows(const int16_t* const (&rows)[1]) {
  return {_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[0])))};
}
inline HalfIntLanes load_rows(const int16_t* const (&rows)[2]) {
  return {_mm512_cvtepi16_epi32(_mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(rows[1]),
                                                    reinterpret_cast<const __m128i*>(rows[0])))};
}
inline HalfIntLanes load_rows(const int16_t* const (&rows)[4]) {
  int64_t part[4];
  for (int e = 0; e < 4; ++e) std::memcpy(part + e, rows[e], sizeof(part[e]));
  return {_mm512_cvtepi16_epi32(_mm256_setr_epi64x(part[0], part[1], part[2], part[3]))};
}
inline HalfLanes spread(const float (&f)[1]) { return half_lanes(f[0]); }
inline HalfLanes spread(const float (&f)[2]) {
  return {_mm512_mask_broadcastss_ps(_mm512_set1_ps(f[0]), 0xff00, _mm_load_ss(f + 1))};
}
inline HalfLanes spread(const float (&f)[4]) {
  const __m512i row_of_lane = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return {_mm512_permutexvar_ps(row_of_lane,
                                _mm512_castps128_ps512(_mm_setr_ps(f[0], f[1], f[2], f[3])))};
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
template <int N, class T>
inline void store_halves(T* p, const EightCounts& counts, int64_t size) {
  const __m512i products =
      _mm512_sub_epi64(_mm512_set1_epi64(size), _mm512_slli_epi64(counts.v, 1));
  const __m512i halves = _mm512_srai_epi64(products, 1);
  const __m128i narrow =
      sizeof(T) == 1 ? _mm512_cvtepi64_epi8(halves) : _mm512_cvtepi64_epi16(halves);
  std::memcpy(p, &narrow, N * sizeof(T));
}

}  // namespace bitgnn::cpu::avx512
