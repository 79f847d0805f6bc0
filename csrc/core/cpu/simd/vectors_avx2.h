// Vector primitives on AVX2 (with POPCNT, F16C); same contract as vectors_portable.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "core/common.h"
#include "core/cpu/simd/bits_avx2.h"

namespace bitgnn::cpu::avx2 {

struct Lanes {
  __m256 v[4];
};

inline Lanes zero_lanes() {
  Lanes r;
  for (auto& v : r.v) v = _mm256_setzero_ps();
  return r;
}
inline Lanes load_lanes(const float* p) {
  Lanes r;
  for (int i = 0; i < 4; ++i) r.v[i] = _mm256_loadu_ps(p + 8 * i);
  return r;
}
inline Lanes load_lanes(const float* p, int64_t count) {
  alignas(32) float buffer[kWordBits] = {};
  std::memcpy(buffer, p, static_cast<size_t>(count) * sizeof(float));
  return load_lanes(buffer);
}
inline void store_lanes(float* p, const Lanes& a) {
  for (int i = 0; i < 4; ++i) _mm256_storeu_ps(p + 8 * i, a.v[i]);
}
inline void store_lanes(float* p, const Lanes& a, int64_t count) {
  alignas(32) float buffer[kWordBits];
  store_lanes(buffer, a);
  std::memcpy(p, buffer, static_cast<size_t>(count) * sizeof(float));
}
// Streaming store to a 32-byte aligned address; readers need a stream_fence() first.
inline void stream_lanes(float* p, const Lanes& a) {
  for (int i = 0; i < 4; ++i) _mm256_stream_ps(p + 8 * i, a.v[i]);
}
inline void stream_fence() { _mm_sfence(); }
inline Lanes add(Lanes a, const Lanes& b) {
  for (int i = 0; i < 4; ++i) a.v[i] = _mm256_add_ps(a.v[i], b.v[i]);
  return a;
}
inline Lanes sub(Lanes a, const Lanes& b) {
  for (int i = 0; i < 4; ++i) a.v[i] = _mm256_sub_ps(a.v[i], b.v[i]);
  return a;
}
inline Lanes mul(Lanes a, const Lanes& b) {
  for (int i = 0; i < 4; ++i) a.v[i] = _mm256_mul_ps(a.v[i], b.v[i]);
  return a;
}
inline Lanes abs(Lanes a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  for (int i = 0; i < 4; ++i) a.v[i] = _mm256_andnot_ps(sign, a.v[i]);
  return a;
}
inline Lanes broadcast_lanes(float value) {
  Lanes r;
  for (auto& v : r.v) v = _mm256_set1_ps(value);
  return r;
}
// 16 floats, for rows of at most 16.
struct HalfLanes {
  __m256 lo, hi;
};

inline HalfLanes half_lanes(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
inline __m256 load_eight(const float* p, int64_t count) {
  const __m256i valid = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                                           _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  return _mm256_maskload_ps(p, valid);
}
inline HalfLanes load_half(const float* p, int64_t count) {
  return {load_eight(p, count), count > 8 ? load_eight(p + 8, count - 8) : _mm256_setzero_ps()};
}
inline HalfLanes add(const HalfLanes& a, const HalfLanes& b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline HalfLanes mul(const HalfLanes& a, const HalfLanes& b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline Lanes widen(const HalfLanes& a) {
  return {{a.lo, a.hi, _mm256_setzero_ps(), _mm256_setzero_ps()}};
}

struct IntLanes {
  __m256i v[4];
};

inline IntLanes load_ints(const int32_t* p) {
  IntLanes r;
  for (int i = 0; i < 4; ++i)
    r.v[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8 * i));
  return r;
}
inline void store_ints(int32_t* p, const IntLanes& a) {
  for (int i = 0; i < 4; ++i) _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8 * i), a.v[i]);
}
inline Lanes to_lanes(const IntLanes& a) {
  Lanes r;
  for (int i = 0; i < 4; ++i) r.v[i] = _mm256_cvtepi32_ps(a.v[i]);
  return r;
}
inline IntLanes halved(IntLanes a) {
  for (auto& v : a.v) v = _mm256_srai_epi32(v, 1);
  return a;
}
inline uint32_t ge_mask(const Lanes& a, const Lanes& b) {
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i)
    bits |= static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.v[i], b.v[i], _CMP_GE_OQ)))
            << (8 * i);
  return bits;
}

inline uint32_t ge_mask(const HalfLanes& a, const HalfLanes& b) {
  const int lo = _mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ));
  const int hi = _mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ));
  return static_cast<uint32_t>(lo | hi << 8);
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

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

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
