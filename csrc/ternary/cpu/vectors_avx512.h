// AVX-512 primitives of the ternary kernels; same contract as vectors_portable.h.
// Selecting pos or neg by a weight's bit is one VPTERNLOG, so a product of a ternary row takes as
// many operations as one of a binary row.
#pragma once

#include "core/cpu/float_types.h"
#include "core/cpu/simd/vectors_avx512.h"

namespace bitgnn::cpu::avx512 {

inline uint32_t lt_mask(const Lanes& a, const Lanes& b) {
  const uint32_t lo = _mm512_cmp_ps_mask(a.lo, b.lo, _CMP_LT_OQ);
  const uint32_t hi = _mm512_cmp_ps_mask(a.hi, b.hi, _CMP_LT_OQ);
  return lo | (hi << 16);
}

inline Lanes load_values(const float* p) { return load_lanes(p); }
inline Lanes load_values(const Half* p) {
  const auto half = [p](int64_t at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + at)));
  };
  return {half(0), half(16)};
}
inline Lanes load_values(const BFloat16* p) {
  const auto half = [p](int64_t at) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  };
  return {half(0), half(16)};
}

inline void store_halves(uint16_t* p, const Lanes& a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16),
                      _mm512_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}

inline IntLanes twice_less(IntLanes a, int32_t b) {
  const __m512i less = _mm512_set1_epi32(b);
  return {_mm512_sub_epi32(_mm512_add_epi32(a.lo, a.lo), less),
          _mm512_sub_epi32(_mm512_add_epi32(a.hi, a.hi), less)};
}

constexpr int kSelectRows = 4;

template <int R, class Emit>
inline void select_dots(const int32_t* pos, const int32_t* neg, int64_t stride,
                        const int32_t* panel, int64_t words, const Emit& emit) {
  constexpr int kChoose = 0xCA;  // a ? b : c
  __m512i lo[R], hi[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) lo[r] = hi[r] = _mm512_setzero_si512();
  for (int64_t w = 0; w < words; ++w) {
    const __m512i b_lo = _mm512_loadu_si512(panel + w * kWordBits);
    const __m512i b_hi = _mm512_loadu_si512(panel + w * kWordBits + 16);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512i p = _mm512_set1_epi32(pos[r * stride + w]);
      const __m512i n = _mm512_set1_epi32(neg[r * stride + w]);
      lo[r] = _mm512_add_epi32(lo[r],
                               _mm512_popcnt_epi32(_mm512_ternarylogic_epi32(b_lo, p, n, kChoose)));
      hi[r] = _mm512_add_epi32(hi[r],
                               _mm512_popcnt_epi32(_mm512_ternarylogic_epi32(b_hi, p, n, kChoose)));
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) emit(r, IntLanes{lo[r], hi[r]});
}

inline __m512i less_twice(__m512i a, __m512i b) {
  return _mm512_sub_epi32(a, _mm512_slli_epi32(b, 1));
}

template <int R, class Emit>
inline void pair_dots(const int32_t* pos, const int32_t* neg, int64_t stride, const int32_t* panel,
                      int64_t words, const Emit& emit) {
  constexpr int kApart = 0x60;  // a & (b ^ c)
  __m512i both[R][2], apart[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) both[r][c] = apart[r][c] = _mm512_setzero_si512();
  for (int64_t w = 0; w < words; ++w) {
    const int32_t* of = panel + w * 2 * kWordBits;
    const __m512i held[2] = {_mm512_loadu_si512(of), _mm512_loadu_si512(of + 16)};
    const __m512i plus[2] = {_mm512_loadu_si512(of + 32), _mm512_loadu_si512(of + 48)};
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512i p = _mm512_set1_epi32(pos[r * stride + w]);
      const __m512i h = _mm512_or_si512(p, _mm512_set1_epi32(neg[r * stride + w]));
#pragma GCC unroll 2
      for (int c = 0; c < 2; ++c) {
        const __m512i common = _mm512_and_si512(h, held[c]);
        both[r][c] = _mm512_add_epi32(both[r][c], _mm512_popcnt_epi32(common));
        apart[r][c] = _mm512_add_epi32(apart[r][c], _mm512_popcnt_epi32(_mm512_ternarylogic_epi32(
                                                        common, p, plus[c], kApart)));
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
    emit(r, IntLanes{less_twice(both[r][0], apart[r][0]), less_twice(both[r][1], apart[r][1])});
}

using RowWords = Bits16;

inline RowWords select(RowWords w, RowWords pos, RowWords neg) {
  return {_mm512_ternarylogic_epi32(w.v, pos.v, neg.v, 0xCA)};
}

struct SetBits {
  __m512i total;

  void clear() { total = _mm512_setzero_si512(); }
  void add(RowWords bits) { total = _mm512_add_epi64(total, _mm512_popcnt_epi64(bits.v)); }
  int32_t sum() const { return static_cast<int32_t>(_mm512_reduce_add_epi64(total)); }
};

}  // namespace bitgnn::cpu::avx512
