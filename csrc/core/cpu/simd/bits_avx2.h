// Vectors of 2 to 16 words of bits on AVX2; same contract as vectors_portable.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "core/common.h"

namespace bitgnn::cpu::avx2 {

// Operators are defined outside their classes: GCC does not apply its target pragma to friends
// defined inside.

inline uint32_t popcount(uint32_t x) { return static_cast<uint32_t>(__builtin_popcount(x)); }

struct Bits2 {
  static constexpr int64_t kWords = 2;
  using Tail = int64_t;
  uint64_t v;

  static Tail tail(int64_t words) { return words < kWords ? words : kWords; }
  static Bits2 zero() { return {0}; }
  static Bits2 load(const int32_t* p, Tail t) {
    if (t == 1) return {static_cast<uint32_t>(*p)};
    Bits2 r;
    std::memcpy(&r.v, p, sizeof(r.v));
    return r;
  }
  static void store(int32_t* p, Bits2 a, Tail t) {
    if (t == 1) {
      *p = static_cast<int32_t>(a.v);
    } else {
      std::memcpy(p, &a.v, sizeof(a.v));
    }
  }
  static Bits2 ones() { return {~uint64_t{0}}; }
  static Bits2 sum(Bits2 a, Bits2 b, Bits2 c);
  static Bits2 carry(Bits2 a, Bits2 b, Bits2 c);
};
inline Bits2 operator&(Bits2 a, Bits2 b) { return {a.v & b.v}; }
inline Bits2 operator|(Bits2 a, Bits2 b) { return {a.v | b.v}; }
inline Bits2 operator^(Bits2 a, Bits2 b) { return {a.v ^ b.v}; }
inline Bits2 Bits2::sum(Bits2 a, Bits2 b, Bits2 c) { return a ^ b ^ c; }
inline Bits2 Bits2::carry(Bits2 a, Bits2 b, Bits2 c) { return (a & b) | (c & (a ^ b)); }

struct Bits4 {
  static constexpr int64_t kWords = 4;
  using Tail = __m128i;
  __m128i v;

  static Tail tail(int64_t words) {
    return _mm_cmpgt_epi32(_mm_set1_epi32(words < kWords ? static_cast<int>(words) : 4),
                           _mm_setr_epi32(0, 1, 2, 3));
  }
  static Bits4 zero() { return {_mm_setzero_si128()}; }
  static Bits4 load(const int32_t* p, Tail t) { return {_mm_maskload_epi32(p, t)}; }
  static void store(int32_t* p, Bits4 a, Tail t) { _mm_maskstore_epi32(p, t, a.v); }
  static Bits4 ones() { return {_mm_set1_epi32(-1)}; }
  static Bits4 sum(Bits4 a, Bits4 b, Bits4 c);
  static Bits4 carry(Bits4 a, Bits4 b, Bits4 c);
};
inline Bits4 operator&(Bits4 a, Bits4 b) { return {_mm_and_si128(a.v, b.v)}; }
inline Bits4 operator|(Bits4 a, Bits4 b) { return {_mm_or_si128(a.v, b.v)}; }
inline Bits4 operator^(Bits4 a, Bits4 b) { return {_mm_xor_si128(a.v, b.v)}; }
inline Bits4 Bits4::sum(Bits4 a, Bits4 b, Bits4 c) { return a ^ b ^ c; }
inline Bits4 Bits4::carry(Bits4 a, Bits4 b, Bits4 c) { return (a & b) | (c & (a ^ b)); }

struct Bits8 {
  static constexpr int64_t kWords = 8;
  using Tail = __m256i;
  __m256i v;

  static Tail tail(int64_t words) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(words < kWords ? static_cast<int>(words) : 8),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Bits8 zero() { return {_mm256_setzero_si256()}; }
  static Bits8 load(const int32_t* p, Tail t) { return {_mm256_maskload_epi32(p, t)}; }
  static void store(int32_t* p, Bits8 a, Tail t) { _mm256_maskstore_epi32(p, t, a.v); }
  static Bits8 ones() { return {_mm256_set1_epi32(-1)}; }
  static Bits8 sum(Bits8 a, Bits8 b, Bits8 c);
  static Bits8 carry(Bits8 a, Bits8 b, Bits8 c);
};
inline Bits8 operator&(Bits8 a, Bits8 b) { return {_mm256_and_si256(a.v, b.v)}; }
inline Bits8 operator|(Bits8 a, Bits8 b) { return {_mm256_or_si256(a.v, b.v)}; }
inline Bits8 operator^(Bits8 a, Bits8 b) { return {_mm256_xor_si256(a.v, b.v)}; }
inline Bits8 Bits8::sum(Bits8 a, Bits8 b, Bits8 c) { return a ^ b ^ c; }
inline Bits8 Bits8::carry(Bits8 a, Bits8 b, Bits8 c) { return (a & b) | (c & (a ^ b)); }

// Two 256-bit halves, with the interface of the 512-bit vector of AVX-512.
struct Bits16 {
  static constexpr int64_t kWords = 16;
  struct Tail {
    __m256i lo, hi;
  };
  __m256i lo, hi;

  static Tail tail(int64_t words) {
    return {Bits8::tail(words), Bits8::tail(words > 8 ? words - 8 : 0)};
  }
  static Bits16 zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static Bits16 load(const int32_t* p, const Tail& t) {
    return {_mm256_maskload_epi32(p, t.lo), _mm256_maskload_epi32(p + 8, t.hi)};
  }
  static void store(int32_t* p, Bits16 a, const Tail& t) {
    _mm256_maskstore_epi32(p, t.lo, a.lo);
    _mm256_maskstore_epi32(p + 8, t.hi, a.hi);
  }
  static Bits16 ones() { return {_mm256_set1_epi32(-1), _mm256_set1_epi32(-1)}; }
  static Bits16 sum(Bits16 a, Bits16 b, Bits16 c);
  static Bits16 carry(Bits16 a, Bits16 b, Bits16 c);
};
inline Bits16 operator&(Bits16 a, Bits16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
inline Bits16 operator|(Bits16 a, Bits16 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
inline Bits16 operator^(Bits16 a, Bits16 b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
inline Bits16 Bits16::sum(Bits16 a, Bits16 b, Bits16 c) { return a ^ b ^ c; }
inline Bits16 Bits16::carry(Bits16 a, Bits16 b, Bits16 c) { return (a & b) | (c & (a ^ b)); }

}  // namespace bitgnn::cpu::avx2
