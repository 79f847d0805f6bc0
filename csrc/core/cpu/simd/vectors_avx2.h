// Vector primitives on AVX2 (with POPCNT, F16C, FMA); same contract as vectors_portable.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "core/common.h"
#include "core/cpu/float_types.h"

namespace bitgnn::cpu::avx2 {

using Floats = __m256;
using Ints = __m256i;
constexpr int kFloats = 8;

inline Floats set_floats(float value) { return _mm256_set1_ps(value); }
inline Floats load_floats(const float* p) { return _mm256_loadu_ps(p); }
inline Floats load_floats(const Half* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Floats load_floats(const BFloat16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline void store_floats(float* p, Floats a) { _mm256_storeu_ps(p, a); }
inline void stream_floats(float* p, Floats a) { _mm256_stream_ps(p, a); }
inline void store_float16(uint16_t* p, Floats a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
inline Floats magnitudes(Floats a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline Floats fused(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline uint32_t ge_bits(Floats a, Floats b) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)));
}
inline uint32_t lt_bits(Floats a, Floats b) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ)));
}
inline Ints set_ints(int32_t value) { return _mm256_set1_epi32(value); }
inline Ints load_integers(const int32_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline void store_integers(int32_t* p, Ints a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a);
}
inline Floats to_floats(Ints a) { return _mm256_cvtepi32_ps(a); }
inline Ints half_ints_of(Ints a) { return _mm256_srai_epi32(a, 1); }
inline Ints add_ints(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Ints sub_ints(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }

// Two 256-bit halves, in place of the 512-bit vector of AVX-512.
struct TwoVectors {
  __m256i lo, hi;
};
inline TwoVectors operator&(TwoVectors a, TwoVectors b) { return {a.lo & b.lo, a.hi & b.hi}; }
inline TwoVectors operator|(TwoVectors a, TwoVectors b) { return {a.lo | b.lo, a.hi | b.hi}; }
inline TwoVectors operator^(TwoVectors a, TwoVectors b) { return {a.lo ^ b.lo, a.hi ^ b.hi}; }
inline TwoVectors operator~(TwoVectors a) { return {~a.lo, ~a.hi}; }

// Two words are a scalar, whose mask is their number.
template <class Vector>
using MaskOf = std::conditional_t<sizeof(Vector) == 8, int64_t, Vector>;
template <class Vector>
inline MaskOf<Vector> first_words(int64_t words) {
  if constexpr (sizeof(Vector) == 8) return words < 2 ? words : 2;
  const int count = words < 16 ? static_cast<int>(words) : 16;
  if constexpr (sizeof(Vector) == 16)
    return _mm_cmpgt_epi32(_mm_set1_epi32(count), _mm_setr_epi32(0, 1, 2, 3));
  if constexpr (sizeof(Vector) == 32)
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  if constexpr (sizeof(Vector) == 64)
    return {first_words<__m256i>(words), first_words<__m256i>(words - 8)};
}
template <class Vector>
inline Vector load_masked(const int32_t* p, MaskOf<Vector> t) {
  if constexpr (sizeof(Vector) == 8) {
    Vector both = static_cast<uint32_t>(*p);
    if (t > 1) std::memcpy(&both, p, sizeof(both));
    return both;
  }
  if constexpr (sizeof(Vector) == 16) return _mm_maskload_epi32(p, t);
  if constexpr (sizeof(Vector) == 32) return _mm256_maskload_epi32(p, t);
  if constexpr (sizeof(Vector) == 64)
    return {_mm256_maskload_epi32(p, t.lo), _mm256_maskload_epi32(p + 8, t.hi)};
}
template <class Vector>
inline void store_masked(int32_t* p, MaskOf<Vector> t, Vector a) {
  if constexpr (sizeof(Vector) == 8) {
    *p = static_cast<int32_t>(a);
    if (t > 1) std::memcpy(p, &a, sizeof(a));
  }
  if constexpr (sizeof(Vector) == 16) _mm_maskstore_epi32(p, t, a);
  if constexpr (sizeof(Vector) == 32) _mm256_maskstore_epi32(p, t, a);
  if constexpr (sizeof(Vector) == 64) {
    _mm256_maskstore_epi32(p, t.lo, a.lo);
    _mm256_maskstore_epi32(p + 8, t.hi, a.hi);
  }
}
template <class Vector>
inline Vector odd_bits(Vector a, Vector b, Vector c) {
  return a ^ b ^ c;
}
template <class Vector>
inline Vector most_bits(Vector a, Vector b, Vector c) {
  return (a & b) | (c & (a ^ b));
}

}  // namespace bitgnn::cpu::avx2

#include "core/cpu/simd/vectors_wide.h"

namespace bitgnn::cpu::avx2 {

inline Lanes load_lanes(const float* p, int64_t count) {
  alignas(32) float buffer[kWordBits] = {};
  std::memcpy(buffer, p, static_cast<size_t>(count) * sizeof(float));
  return load_lanes(buffer);
}
inline void store_lanes(float* p, const Lanes& a, int64_t count) {
  alignas(32) float buffer[kWordBits];
  store_lanes(buffer, a);
  std::memcpy(p, buffer, static_cast<size_t>(count) * sizeof(float));
}
inline __m256 load_eight(const float* p, int64_t count) {
  const __m256i valid = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                                           _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  return _mm256_maskload_ps(p, valid);
}
inline HalfLanes load_half(const float* p, int64_t count) {
  return {load_eight(p, count), count > 8 ? load_eight(p + 8, count - 8) : _mm256_setzero_ps()};
}
inline Lanes signed_lanes(uint32_t bits, float value) {
  const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256 plus = _mm256_set1_ps(value), minus = _mm256_set1_ps(-value);
  Lanes r;
  for (int i = 0; i < 4; ++i) {
    const __m256i byte = _mm256_set1_epi32(static_cast<int32_t>((bits >> (8 * i)) & 0xffu));
    const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(byte, bit), bit);
    r.v[i] = _mm256_blendv_ps(minus, plus, _mm256_castsi256_ps(set));
  }
  return r;
}

using Bits2 = WordVector<uint64_t, 2>;
using Bits4 = WordVector<__m128i, 4>;
using Bits8 = WordVector<__m256i, 8>;
using Bits16 = WordVector<TwoVectors, 16>;

inline IntLanes signed_sums(const int32_t* planes, int64_t plane_stride, int count,
                            int64_t degree) {
  const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  IntLanes sums;
  for (auto& v : sums.v) v = _mm256_set1_epi32(static_cast<int32_t>(-degree));
  for (int p = 0; p < count; ++p) {
    const uint32_t bits = static_cast<uint32_t>(planes[p * plane_stride]);
    const __m256i weight = _mm256_set1_epi32(static_cast<int32_t>(2u << p));
    for (int i = 0; i < 4; ++i) {
      const __m256i byte = _mm256_set1_epi32(static_cast<int32_t>((bits >> (8 * i)) & 0xffu));
      const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(byte, bit), bit);
      sums.v[i] = _mm256_add_epi32(sums.v[i], _mm256_and_si256(set, weight));
    }
  }
  return sums;
}

// The same for two words at once in bytes, if the degree fits.
constexpr int64_t kMaxByteDegree = 127;

struct BytePair {
  __m256i v[2];

  static IntLanes widen(__m256i bytes) {
    const __m128i lo = _mm256_castsi256_si128(bytes), hi = _mm256_extracti128_si256(bytes, 1);
    return {{_mm256_cvtepi8_epi32(lo), _mm256_cvtepi8_epi32(_mm_srli_si128(lo, 8)),
             _mm256_cvtepi8_epi32(hi), _mm256_cvtepi8_epi32(_mm_srli_si128(hi, 8))}};
  }
  IntLanes first() const { return widen(v[0]); }
  IntLanes second() const { return widen(v[1]); }
};

inline BytePair signed_byte_sums(const int32_t* planes, int64_t plane_stride, int count,
                                 int64_t degree) {
  // Spreads byte k of a word to eight lanes, then selects one bit per lane.
  const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                          2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  BytePair sum;
  sum.v[0] = sum.v[1] = _mm256_set1_epi8(static_cast<char>(-degree));
  __m256i weight = _mm256_set1_epi8(2);
  for (int p = 0; p < count; ++p) {
    for (int w = 0; w < 2; ++w) {
      const __m256i word = _mm256_set1_epi32(planes[p * plane_stride + w]);
      const __m256i set =
          _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(word, spread), bit), bit);
      sum.v[w] = _mm256_add_epi8(sum.v[w], _mm256_and_si256(set, weight));
    }
    weight = _mm256_add_epi8(weight, weight);
  }
  return sum;
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
