// Vector primitives on AVX-512 (F, BW, DQ, VL, VPOPCNTDQ, VNNI); same contract as
// vectors_portable.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "core/common.h"

namespace bitgnn::cpu::avx512 {

// Operators are defined outside their classes: GCC does not apply its target pragma to friends
// defined inside.

struct Lanes {
  __m512 lo, hi;
};

inline Lanes zero_lanes() { return {_mm512_setzero_ps(), _mm512_setzero_ps()}; }
inline Lanes load_lanes(const float* p) { return {_mm512_loadu_ps(p), _mm512_loadu_ps(p + 16)}; }
inline Lanes load_lanes(const float* p, int64_t count) {
  const uint32_t mask = count >= 32 ? 0xffffffffu : (1u << count) - 1u;
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), p),
          _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), p + 16)};
}
inline void store_lanes(float* p, const Lanes& a) {
  _mm512_storeu_ps(p, a.lo);
  _mm512_storeu_ps(p + 16, a.hi);
}
inline void store_lanes(float* p, const Lanes& a, int64_t count) {
  const uint32_t mask = count >= 32 ? 0xffffffffu : (1u << count) - 1u;
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>(mask), a.lo);
  _mm512_mask_storeu_ps(p + 16, static_cast<__mmask16>(mask >> 16), a.hi);
}
// Streaming store to a 64-byte aligned address; readers need a stream_fence() first.
inline void stream_lanes(float* p, const Lanes& a) {
  _mm512_stream_ps(p, a.lo);
  _mm512_stream_ps(p + 16, a.hi);
}
inline void stream_fence() { _mm_sfence(); }
inline Lanes add(const Lanes& a, const Lanes& b) {
  return {_mm512_add_ps(a.lo, b.lo), _mm512_add_ps(a.hi, b.hi)};
}
inline Lanes sub(const Lanes& a, const Lanes& b) {
  return {_mm512_sub_ps(a.lo, b.lo), _mm512_sub_ps(a.hi, b.hi)};
}
inline Lanes mul(const Lanes& a, const Lanes& b) {
  return {_mm512_mul_ps(a.lo, b.lo), _mm512_mul_ps(a.hi, b.hi)};
}
inline Lanes abs(const Lanes& a) { return {_mm512_abs_ps(a.lo), _mm512_abs_ps(a.hi)}; }
inline Lanes broadcast_lanes(float value) { return {_mm512_set1_ps(value), _mm512_set1_ps(value)}; }
// 16 floats, for rows of at most 16.
struct HalfLanes {
  __m512 v;
};

inline HalfLanes half_lanes(float value) { return {_mm512_set1_ps(value)}; }
inline HalfLanes load_half(const float* p, int64_t count) {
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1u), p)};
}
inline HalfLanes add(HalfLanes a, HalfLanes b) { return {_mm512_add_ps(a.v, b.v)}; }
inline HalfLanes mul(HalfLanes a, HalfLanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Lanes widen(HalfLanes a) { return {a.v, _mm512_setzero_ps()}; }

struct IntLanes {
  __m512i lo, hi;
};

inline IntLanes load_ints(const int32_t* p) {
  return {_mm512_loadu_si512(p), _mm512_loadu_si512(p + 16)};
}
inline void store_ints(int32_t* p, const IntLanes& a) {
  _mm512_storeu_si512(p, a.lo);
  _mm512_storeu_si512(p + 16, a.hi);
}
inline Lanes to_lanes(const IntLanes& a) {
  return {_mm512_cvtepi32_ps(a.lo), _mm512_cvtepi32_ps(a.hi)};
}
inline IntLanes halved(const IntLanes& a) {
  return {_mm512_srai_epi32(a.lo, 1), _mm512_srai_epi32(a.hi, 1)};
}
inline uint32_t ge_mask(const Lanes& a, const Lanes& b) {
  const uint32_t lo = _mm512_cmp_ps_mask(a.lo, b.lo, _CMP_GE_OQ);
  const uint32_t hi = _mm512_cmp_ps_mask(a.hi, b.hi, _CMP_GE_OQ);
  return lo | (hi << 16);
}

inline uint32_t ge_mask(HalfLanes a, HalfLanes b) {
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ);
}

inline Lanes signed_lanes(uint32_t bits, float value) {
  const __m512 plus = _mm512_set1_ps(value), minus = _mm512_set1_ps(-value);
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(bits), minus, plus),
          _mm512_mask_blend_ps(static_cast<__mmask16>(bits >> 16), minus, plus)};
}

inline uint32_t popcount(uint32_t x) { return static_cast<uint32_t>(__builtin_popcount(x)); }

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

  // True if `count` columns, at most eight, ascend inside of `cols`, behind the one before them
  // unless they are the first of a row, and their values reach the threshold.
  static bool entries_fit(const int64_t* columns, const float* values, int64_t count, bool first,
                          int64_t cols, float threshold) {
    const auto valid = static_cast<__mmask8>((1u << count) - 1u);
    const auto behind = static_cast<__mmask8>(first ? valid & ~1u : valid);
    const __m512i own = _mm512_maskz_loadu_epi64(valid, columns);
    const __m512i before = _mm512_maskz_loadu_epi64(behind, columns - 1);
    const __mmask8 outside = _mm512_mask_cmpge_epu64_mask(valid, own, _mm512_set1_epi64(cols));
    return (outside | _mm512_mask_cmple_epi64_mask(behind, own, before) |
            misses(values, valid, threshold)) == 0;
  }
  static bool entries_fit(const int32_t* columns, const float* values, int64_t count, bool first,
                          int64_t cols, float threshold) {
    const auto valid = static_cast<__mmask8>((1u << count) - 1u);
    const auto behind = static_cast<__mmask8>(first ? valid & ~1u : valid);
    const __m256i own = _mm256_maskz_loadu_epi32(valid, columns);
    const __m256i before = _mm256_maskz_loadu_epi32(behind, columns - 1);
    const __mmask8 outside =
        _mm256_mask_cmpge_epu32_mask(valid, own, _mm256_set1_epi32(static_cast<int32_t>(cols)));
    return (outside | _mm256_mask_cmple_epi32_mask(behind, own, before) |
            misses(values, valid, threshold)) == 0;
  }

 private:
  static __mmask8 misses(const float* values, __mmask8 valid, float threshold) {
    return _mm256_mask_cmp_ps_mask(valid, _mm256_maskz_loadu_ps(valid, values),
                                   _mm256_set1_ps(threshold), _CMP_NGE_UQ);
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

// W words of bits with a mask of the valid ones.
template <class Vector, int64_t W>
struct WordVector {
  static constexpr int64_t kWords = W;
  using Tail = __mmask16;
  Vector v;

  static Tail tail(int64_t words) {
    return static_cast<Tail>(words >= kWords ? (1 << kWords) - 1 : (1 << words) - 1);
  }
  static WordVector zero() { return {Vector{}}; }
  static WordVector load(const int32_t* p, Tail t) {
    const auto few = static_cast<__mmask8>(t);
    if constexpr (W == 4) return {_mm_maskz_loadu_epi32(few, p)};
    if constexpr (W == 8) return {_mm256_maskz_loadu_epi32(few, p)};
    if constexpr (W == 16) return {_mm512_maskz_loadu_epi32(t, p)};
  }
  static void store(int32_t* p, WordVector a, Tail t) {
    const auto few = static_cast<__mmask8>(t);
    if constexpr (W == 4) _mm_mask_storeu_epi32(p, few, a.v);
    if constexpr (W == 8) _mm256_mask_storeu_epi32(p, few, a.v);
    if constexpr (W == 16) _mm512_mask_storeu_epi32(p, t, a.v);
  }
  static WordVector ones() { return {~Vector{}}; }
  template <int kTable>
  static WordVector logic(WordVector a, WordVector b, WordVector c) {
    if constexpr (W == 4) return {_mm_ternarylogic_epi32(a.v, b.v, c.v, kTable)};
    if constexpr (W == 8) return {_mm256_ternarylogic_epi32(a.v, b.v, c.v, kTable)};
    if constexpr (W == 16) return {_mm512_ternarylogic_epi32(a.v, b.v, c.v, kTable)};
  }
  static WordVector sum(WordVector a, WordVector b, WordVector c) { return logic<0x96>(a, b, c); }
  static WordVector carry(WordVector a, WordVector b, WordVector c) { return logic<0xE8>(a, b, c); }
};
template <class Vector, int64_t W>
inline WordVector<Vector, W> operator&(WordVector<Vector, W> a, WordVector<Vector, W> b) {
  return {a.v & b.v};
}
template <class Vector, int64_t W>
inline WordVector<Vector, W> operator|(WordVector<Vector, W> a, WordVector<Vector, W> b) {
  return {a.v | b.v};
}
template <class Vector, int64_t W>
inline WordVector<Vector, W> operator^(WordVector<Vector, W> a, WordVector<Vector, W> b) {
  return {a.v ^ b.v};
}
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

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

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
