// AVX2 primitives of the ternary kernels; same contract as vectors_portable.h.
#pragma once

#include "core/cpu/float_types.h"
#include "core/cpu/simd/dots_avx2.h"

namespace bitgnn::cpu::avx2 {

inline uint32_t lt_mask(const Lanes& a, const Lanes& b) {
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i)
    bits |= static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.v[i], b.v[i], _CMP_LT_OQ)))
            << (8 * i);
  return bits;
}

inline Lanes load_values(const float* p) { return load_lanes(p); }
inline Lanes load_values(const Half* p) {
  Lanes r;
  for (int i = 0; i < 4; ++i)
    r.v[i] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8 * i)));
  return r;
}
inline Lanes load_values(const BFloat16* p) {
  Lanes r;
  for (int i = 0; i < 4; ++i) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8 * i));
    r.v[i] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  return r;
}

inline void store_halves(uint16_t* p, const Lanes& a) {
  for (int i = 0; i < 4; ++i)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8 * i),
                     _mm256_cvtps_ph(a.v[i], _MM_FROUND_TO_NEAREST_INT));
}

inline IntLanes twice_less(IntLanes a, int32_t b) {
  for (auto& v : a.v) v = _mm256_sub_epi32(_mm256_add_epi32(v, v), _mm256_set1_epi32(b));
  return a;
}

constexpr int kSelectRows = 2;
constexpr int64_t kWordsOfBytes = 31;  // a byte can sum this many counts of at most 8

// Sums of the four bytes of each 32-bit lane.
inline __m256i lane_sums(__m256i bytes) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(bytes, _mm256_set1_epi8(1)), _mm256_set1_epi16(1));
}

template <int R, class Emit>
inline void select_dots(const int32_t* pos, const int32_t* neg, int64_t stride,
                        const int32_t* panel, int64_t words, const Emit& emit) {
  IntLanes counts[R];
  for (auto& count : counts)
    for (auto& v : count.v) v = _mm256_setzero_si256();
  for (int64_t begin = 0; begin < words; begin += kWordsOfBytes) {
    const int64_t end = begin + kWordsOfBytes < words ? begin + kWordsOfBytes : words;
    __m256i bytes[R][4];
    for (int r = 0; r < R; ++r)
      for (auto& b : bytes[r]) b = _mm256_setzero_si256();
    for (int64_t w = begin; w < end; ++w) {
      for (int r = 0; r < R; ++r) {
        const __m256i n = _mm256_set1_epi32(neg[r * stride + w]);
        const __m256i either = _mm256_xor_si256(n, _mm256_set1_epi32(pos[r * stride + w]));
        for (int c = 0; c < 4; ++c) {
          const __m256i b = load_words(panel + w * kWordBits + 8 * c);
          const __m256i chosen = _mm256_xor_si256(n, _mm256_and_si256(b, either));
          bytes[r][c] = _mm256_add_epi8(bytes[r][c], byte_popcounts(chosen));
        }
      }
    }
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < 4; ++c)
        counts[r].v[c] = _mm256_add_epi32(counts[r].v[c], lane_sums(bytes[r][c]));
  }
  for (int r = 0; r < R; ++r) emit(r, counts[r]);
}

template <int R, class Emit>
inline void pair_dots(const int32_t* pos, const int32_t* neg, int64_t stride, const int32_t* panel,
                      int64_t words, const Emit& emit) {
  for (int r = 0; r < R; ++r) {
    IntLanes dots;
    for (auto& v : dots.v) v = _mm256_setzero_si256();
    for (int64_t begin = 0; begin < words; begin += kWordsOfBytes) {
      const int64_t end = begin + kWordsOfBytes < words ? begin + kWordsOfBytes : words;
      __m256i held_bytes[4], apart_bytes[4];
      for (int c = 0; c < 4; ++c) held_bytes[c] = apart_bytes[c] = _mm256_setzero_si256();
      for (int64_t w = begin; w < end; ++w) {
        const __m256i p = _mm256_set1_epi32(pos[r * stride + w]);
        const __m256i held = _mm256_or_si256(p, _mm256_set1_epi32(neg[r * stride + w]));
        for (int c = 0; c < 4; ++c) {
          const int32_t* of = panel + w * 2 * kWordBits + 8 * c;
          const __m256i both = _mm256_and_si256(held, load_words(of));
          const __m256i apart =
              _mm256_and_si256(both, _mm256_xor_si256(p, load_words(of + kWordBits)));
          held_bytes[c] = _mm256_add_epi8(held_bytes[c], byte_popcounts(both));
          apart_bytes[c] = _mm256_add_epi8(apart_bytes[c], byte_popcounts(apart));
        }
      }
      for (int c = 0; c < 4; ++c) {
        const __m256i twice = _mm256_slli_epi32(lane_sums(apart_bytes[c]), 1);
        const __m256i sum = _mm256_sub_epi32(lane_sums(held_bytes[c]), twice);
        dots.v[c] = _mm256_add_epi32(dots.v[c], sum);
      }
    }
    emit(r, dots);
  }
}

using RowWords = Bits8;

inline RowWords select(RowWords w, RowWords pos, RowWords neg) { return neg ^ (w & (pos ^ neg)); }

struct SetBits {
  __m256i total;

  void clear() { total = _mm256_setzero_si256(); }
  void add(RowWords bits) {
    const __m256i sums = _mm256_sad_epu8(byte_popcounts(bits.v), _mm256_setzero_si256());
    total = _mm256_add_epi64(total, sums);
  }
  int32_t sum() const {
    const __m128i halves =
        _mm_add_epi64(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
    return static_cast<int32_t>(_mm_cvtsi128_si64(halves) + _mm_extract_epi64(halves, 1));
  }
};

}  // namespace bitgnn::cpu::avx2
