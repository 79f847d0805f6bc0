// Vector primitives on AVX-512 (F, BW, DQ, VL, VPOPCNTDQ); same contract as vectors_portable.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "core/common.h"
#include "core/cpu/float_types.h"

namespace bitgnn::cpu::avx512 {

using Floats = __m512;
using Ints = __m512i;
constexpr int kFloats = 16;

inline Floats set_floats(float value) { return _mm512_set1_ps(value); }
inline Floats load_floats(const float* p) { return _mm512_loadu_ps(p); }
inline Floats load_floats(const Half* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Floats load_floats(const BFloat16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline void store_floats(float* p, Floats a) { _mm512_storeu_ps(p, a); }
inline void stream_floats(float* p, Floats a) { _mm512_stream_ps(p, a); }
inline void store_float16(uint16_t* p, Floats a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
inline Floats magnitudes(Floats a) { return _mm512_abs_ps(a); }
inline Floats fused(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline uint32_t ge_bits(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
inline uint32_t lt_bits(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline Ints set_ints(int32_t value) { return _mm512_set1_epi32(value); }
inline Ints load_integers(const int32_t* p) { return _mm512_loadu_si512(p); }
inline void store_integers(int32_t* p, Ints a) { _mm512_storeu_si512(p, a); }
inline Floats to_floats(Ints a) { return _mm512_cvtepi32_ps(a); }
inline Ints half_ints_of(Ints a) { return _mm512_srai_epi32(a, 1); }
inline Ints add_ints(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Ints sub_ints(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }

template <class Vector>
using MaskOf = __mmask16;
template <class Vector>
inline __mmask16 first_words(int64_t words) {
  constexpr int kAll = sizeof(Vector) / sizeof(int32_t);
  return static_cast<__mmask16>((1u << (words < kAll ? static_cast<int>(words) : kAll)) - 1u);
}
template <class Vector>
inline Vector load_masked(const int32_t* p, __mmask16 t) {
  const auto few = static_cast<__mmask8>(t);
  if constexpr (sizeof(Vector) == 16) return _mm_maskz_loadu_epi32(few, p);
  if constexpr (sizeof(Vector) == 32) return _mm256_maskz_loadu_epi32(few, p);
  if constexpr (sizeof(Vector) == 64) return _mm512_maskz_loadu_epi32(t, p);
}
template <class Vector>
inline void store_masked(int32_t* p, __mmask16 t, Vector a) {
  const auto few = static_cast<__mmask8>(t);
  if constexpr (sizeof(Vector) == 16) _mm_mask_storeu_epi32(p, few, a);
  if constexpr (sizeof(Vector) == 32) _mm256_mask_storeu_epi32(p, few, a);
  if constexpr (sizeof(Vector) == 64) _mm512_mask_storeu_epi32(p, t, a);
}
template <int kTable, class Vector>
inline Vector ternary_logic(Vector a, Vector b, Vector c) {
  if constexpr (sizeof(Vector) == 16) return _mm_ternarylogic_epi32(a, b, c, kTable);
  if constexpr (sizeof(Vector) == 32) return _mm256_ternarylogic_epi32(a, b, c, kTable);
  if constexpr (sizeof(Vector) == 64) return _mm512_ternarylogic_epi32(a, b, c, kTable);
}
template <class Vector>
inline Vector odd_bits(Vector a, Vector b, Vector c) {
  return ternary_logic<0x96>(a, b, c);
}
template <class Vector>
inline Vector most_bits(Vector a, Vector b, Vector c) {
  return ternary_logic<0xE8>(a, b, c);
}

}  // namespace bitgnn::cpu::avx512

#include "core/cpu/simd/vectors_wide.h"

namespace bitgnn::cpu::avx512 {

inline uint32_t all_lanes(int64_t count) {
  return count >= kWordBits ? 0xffffffffu : (1u << count) - 1u;
}
inline __mmask16 lane_mask(int64_t count, int vector) {
  return static_cast<__mmask16>(all_lanes(count) >> (kFloats * vector));
}
inline Lanes load_lanes(const float* p, int64_t count) {
  return each_vector<Lanes>(
      [=](int i) { return _mm512_maskz_loadu_ps(lane_mask(count, i), p + kFloats * i); });
}
inline void store_lanes(float* p, const Lanes& a, int64_t count) {
  for_vectors([&](int i) { _mm512_mask_storeu_ps(p + kFloats * i, lane_mask(count, i), a.v[i]); });
}
inline HalfLanes load_half(const float* p, int64_t count) {
  return {_mm512_maskz_loadu_ps(lane_mask(count, 0), p)};
}
inline Lanes signed_lanes(uint32_t bits, float value) {
  const __m512 plus = _mm512_set1_ps(value), minus = _mm512_set1_ps(-value);
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(bits), minus, plus),
          _mm512_mask_blend_ps(static_cast<__mmask16>(bits >> 16), minus, plus)};
}

// Counts of up to 64 features in bytes: a set bit becomes a byte of -1, which is subtracted.
struct ByteCounts {
  static constexpr int64_t kBytes = 64;
  __m512i v;

  static ByteCounts zero() { return {_mm512_setzero_si512()}; }
  static ByteCounts load(const int8_t* p) { return {_mm512_loadu_si512(p)}; }
  static ByteCounts add(ByteCounts a, uint64_t bits) {
    return {_mm512_sub_epi8(a.v, _mm512_movm_epi8(_cvtu64_mask64(bits)))};
  }
  // Bits where 2 count - degree exceeds the bound; all values fit in signed bytes.
  static uint64_t exceed(ByteCounts a, int64_t degree, ByteCounts bounds) {
    const __m512i sums =
        _mm512_sub_epi8(_mm512_add_epi8(a.v, a.v), _mm512_set1_epi8(static_cast<char>(degree)));
    return _cvtmask64_u64(_mm512_cmpgt_epi8_mask(sums, bounds.v));
  }
};

struct Bits2 {
  static constexpr int64_t kWords = 2;
  using Tail = bool;  // both words valid
  using Counts = ByteCounts;
  __m128i v;

  static Tail tail(int64_t words) { return words >= kWords; }
  static Bits2 zero() { return {_mm_setzero_si128()}; }
  static Bits2 load(const int32_t* p, Tail both) {
    return {both ? _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)) : _mm_cvtsi32_si128(*p)};
  }
  static void store(int32_t* p, Bits2 a, Tail both) {
    if (both) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(p), a.v);
    } else {
      *p = _mm_cvtsi128_si32(a.v);
    }
  }
  static Bits2 ones() { return {_mm_set1_epi32(-1)}; }
  static Bits2 sum(Bits2 a, Bits2 b, Bits2 c) {
    return {_mm_ternarylogic_epi32(a.v, b.v, c.v, 0x96)};
  }
  static Bits2 carry(Bits2 a, Bits2 b, Bits2 c) {
    return {_mm_ternarylogic_epi32(a.v, b.v, c.v, 0xE8)};
  }
};
inline Bits2 operator&(Bits2 a, Bits2 b) { return {_mm_and_si128(a.v, b.v)}; }
inline Bits2 operator|(Bits2 a, Bits2 b) { return {_mm_or_si128(a.v, b.v)}; }
inline Bits2 operator^(Bits2 a, Bits2 b) { return {_mm_xor_si128(a.v, b.v)}; }

using Bits4 = WordVector<__m128i, 4>;
using Bits8 = WordVector<__m256i, 8>;
using Bits16 = WordVector<__m512i, 16>;

inline IntLanes signed_sums(const int32_t* planes, int64_t plane_stride, int count,
                            int64_t degree) {
  __m512i lo = _mm512_set1_epi32(static_cast<int32_t>(-degree)), hi = lo;
  for (int p = 0; p < count; ++p) {
    const uint32_t bits = static_cast<uint32_t>(planes[p * plane_stride]);
    const __m512i weight = _mm512_set1_epi32(static_cast<int32_t>(2u << p));
    lo = _mm512_mask_add_epi32(lo, static_cast<__mmask16>(bits), lo, weight);
    hi = _mm512_mask_add_epi32(hi, static_cast<__mmask16>(bits >> 16), hi, weight);
  }
  return {lo, hi};
}

// The same for two words at once in bytes, if the degree fits.
constexpr int64_t kMaxByteDegree = 127;

struct BytePair {
  __m512i v;

  IntLanes first() const {
    return {_mm512_cvtepi8_epi32(_mm512_castsi512_si128(v)),
            _mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(v, 1))};
  }
  IntLanes second() const {
    return {_mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(v, 2)),
            _mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(v, 3))};
  }
};

inline BytePair signed_byte_sums(const int32_t* planes, int64_t plane_stride, int count,
                                 int64_t degree) {
  __m512i sum = _mm512_set1_epi8(static_cast<char>(-degree));
  __m512i weight = _mm512_set1_epi8(2);
  for (int p = 0; p < count; ++p) {
    const __mmask64 bits =
        _load_mask64(reinterpret_cast<__mmask64*>(const_cast<int32_t*>(planes + p * plane_stride)));
    sum = _mm512_mask_add_epi8(sum, bits, sum, weight);
    weight = _mm512_add_epi8(weight, weight);
  }
  return {sum};
}

inline IntLanes load_some_ints(const int32_t* p, int64_t count) {
  return {_mm512_maskz_loadu_epi32(lane_mask(count, 0), p),
          _mm512_maskz_loadu_epi32(lane_mask(count, 1), p + 16)};
}
inline IntLanes load_some_ints(const int16_t* p, int64_t count) {
  const __m512i v = _mm512_maskz_loadu_epi16(all_lanes(count), p);
  return {_mm512_cvtepi16_epi32(_mm512_castsi512_si256(v)),
          _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(v, 1))};
}
inline void store_some_ints(int32_t* p, const IntLanes& a, int64_t count) {
  _mm512_mask_storeu_epi32(p, lane_mask(count, 0), a.v[0]);
  _mm512_mask_storeu_epi32(p + 16, lane_mask(count, 1), a.v[1]);
}
inline void store_some_ints(int16_t* p, const IntLanes& a, int64_t count) {
  const __m512i v = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtsepi32_epi16(a.v[0])),
                                       _mm512_cvtsepi32_epi16(a.v[1]), 1);
  _mm512_mask_storeu_epi16(p, all_lanes(count), v);
}

}  // namespace bitgnn::cpu::avx512
