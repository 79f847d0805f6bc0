// Dot products of packed rows on AVX2; same contract as dots_portable.h.
#pragma once

#include "core/cpu/simd/plain.h"
#include "core/cpu/simd/vectors_avx2.h"

namespace bitgnn::cpu::avx2 {

constexpr int kTileRows = 2;
constexpr int kTilePanels = 2;
constexpr int64_t kParityWords = 32;  // running parities pay off from here on
constexpr int64_t kListedCost = 2;
constexpr int kScanRows = 4;  // rows whose distances are counted side by side

// Byte popcounts by two 4-bit table look-ups (Mula's algorithm).
inline __m256i byte_popcounts(__m256i x) {
  const __m256i table = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1, 2,
                                         1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
  const __m256i nibble = _mm256_set1_epi8(0x0f);
  return _mm256_add_epi8(
      _mm256_shuffle_epi8(table, _mm256_and_si256(x, nibble)),
      _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble)));
}

template <int R, int P, class Emit>
inline void xor_dots(const int32_t* x, int64_t x_stride, const int32_t* panels, int64_t words,
                     int64_t size, const Emit& emit) {
  constexpr int64_t kBytesFull = 31;  // a byte holds 31 counts of at most 8
  const __m256i total = _mm256_set1_epi32(static_cast<int32_t>(size));
  for (int p = 0; p < P; ++p) {
    const int32_t* panel = panels + p * words * kWordBits;
    IntLanes dots[R];
    for (auto& dot : dots)
      for (auto& v : dot.v) v = total;
    for (int64_t begin = 0; begin < words; begin += kBytesFull) {
      const int64_t end = begin + kBytesFull < words ? begin + kBytesFull : words;
      __m256i acc[R][4];
      for (int r = 0; r < R; ++r)
        for (auto& a : acc[r]) a = _mm256_setzero_si256();
      for (int64_t w = begin; w < end; ++w) {
        for (int c = 0; c < 4; ++c) {
          const __m256i b =
              _mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + w * kWordBits + 8 * c));
          for (int r = 0; r < R; ++r) {
            const __m256i a = _mm256_set1_epi32(x[r * x_stride + w]);
            acc[r][c] = _mm256_add_epi8(acc[r][c], byte_popcounts(_mm256_xor_si256(a, b)));
          }
        }
      }
      for (int r = 0; r < R; ++r) {
        for (int c = 0; c < 4; ++c) {
          const __m256i pairs = _mm256_maddubs_epi16(acc[r][c], _mm256_set1_epi8(2));
          const __m256i twice = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
          dots[r].v[c] = _mm256_sub_epi32(dots[r].v[c], twice);
        }
      }
    }
    for (int r = 0; r < R; ++r) emit(r, p, dots[r]);
  }
}

template <int R, int P, class Emit>
inline void parity_dots(const int32_t* x, int64_t x_stride, const int32_t* panels, int64_t words,
                        int64_t size, const Emit& emit) {
  constexpr int64_t kBytesFull =
      2 * 31;  // a byte holds 31 counts of at most 8, one per pair of words
  const __m256i twos = _mm256_set1_epi8(2), ones = _mm256_set1_epi16(1);
  const auto twice = [&](__m256i counts) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(counts, twos), ones);
  };
  for (int p = 0; p < P; ++p) {
    const int32_t* panel = panels + p * words * kWordBits;
    IntLanes dots[R];
    for (int c = 0; c < 4; ++c) {
      __m256i total[R], last[R];
      for (int r = 0; r < R; ++r) {
        total[r] = _mm256_set1_epi32(static_cast<int32_t>(size));
        last[r] = _mm256_setzero_si256();
      }
      const auto parity = [&](int r, int64_t w) {
        return _mm256_xor_si256(
            _mm256_set1_epi32(x[r * x_stride + w]),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + w * kWordBits + 8 * c)));
      };
      for (int64_t begin = 0; begin < words; begin += kBytesFull) {
        const int64_t end = begin + kBytesFull < words ? begin + kBytesFull : words;
        __m256i acc[R];
        for (auto& a : acc) a = _mm256_setzero_si256();
        int64_t w = begin;
        for (; w + 2 <= end; w += 2) {
          for (int r = 0; r < R; ++r) {
            const __m256i middle = parity(r, w), next = parity(r, w + 1);
            const __m256i carry = _mm256_or_si256(_mm256_andnot_si256(middle, last[r]),
                                                  _mm256_andnot_si256(next, middle));
            acc[r] = _mm256_add_epi8(acc[r], byte_popcounts(carry));
            last[r] = next;
          }
        }
        if (w < end) {
          for (int r = 0; r < R; ++r) {
            const __m256i next = parity(r, w);
            acc[r] = _mm256_add_epi8(acc[r], byte_popcounts(_mm256_andnot_si256(next, last[r])));
            last[r] = next;
          }
        }
        for (int r = 0; r < R; ++r)
          total[r] = _mm256_sub_epi32(total[r], _mm256_slli_epi32(twice(acc[r]), 1));
      }
      for (int r = 0; r < R; ++r)
        dots[r].v[c] = _mm256_sub_epi32(total[r], twice(byte_popcounts(last[r])));
    }
    for (int r = 0; r < R; ++r) emit(r, p, dots[r]);
  }
}

constexpr int kFixedRows = 2;

template <int R, class Emit>
inline void fixed_dots(const int16_t* x, int64_t x_stride, const int64_t* run_at, int64_t runs,
                       int64_t pairs, const int16_t* w, const Emit& emit) {
  IntLanes sums[R];
  for (auto& sum : sums)
    for (auto& v : sum.v) v = _mm256_setzero_si256();
  for (int64_t run = 0; run < runs; ++run) {
    const int16_t* from = x + run_at[run];
    for (int64_t k = 0; k < pairs; ++k, from += 2, w += 2 * kWordBits) {
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r) {
        int32_t pair;
        std::memcpy(&pair, from + r * x_stride, sizeof(pair));
        const __m256i v = _mm256_set1_epi32(pair);
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) {
          const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 16 * c));
          sums[r].v[c] = _mm256_add_epi32(sums[r].v[c], _mm256_madd_epi16(v, b));
        }
      }
    }
  }
  for (int r = 0; r < R; ++r) emit(r, sums[r]);
}

inline int64_t list_words(const int32_t* x, int64_t words, int32_t* places) {
  int64_t count = 0;
  for (int64_t w = 0; w < words; ++w) {
    places[count] = static_cast<int32_t>(w);
    count += x[w] != 0;
  }
  return count;
}

inline IntLanes listed_dots(const int32_t* x, const int32_t* places, int64_t count,
                            const int32_t* panel, const int32_t* base, int32_t add) {
  constexpr int64_t kBytesFull = 31;
  const __m256i one_bytes = _mm256_set1_epi8(1), one_shorts = _mm256_set1_epi16(1);
  IntLanes dots;
  for (int c = 0; c < 4; ++c) {
    const auto load = [c](const int32_t* p) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8 * c));
    };
    __m256i sum = _mm256_setzero_si256();
    for (int64_t begin = 0; begin < count; begin += kBytesFull) {
      const int64_t end = begin + kBytesFull < count ? begin + kBytesFull : count;
      __m256i bytes = _mm256_setzero_si256();
      for (int64_t k = begin; k < end; ++k) {
        const __m256i b = load(panel + places[k] * kWordBits);
        const __m256i common = _mm256_and_si256(_mm256_set1_epi32(x[places[k]]), b);
        bytes = _mm256_add_epi8(bytes, byte_popcounts(common));
      }
      const __m256i pairs = _mm256_maddubs_epi16(bytes, one_bytes);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, one_shorts));
    }
    const __m256i start = _mm256_add_epi32(load(base), _mm256_set1_epi32(add));
    dots.v[c] = _mm256_add_epi32(start, _mm256_slli_epi32(sum, 2));
  }
  return dots;
}

inline __m256i load_words(const int32_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

template <int R>
inline void distances(const int32_t* x, const int32_t* rows, int64_t words, int32_t* counts) {
  __m256i sums[R];
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  int64_t w = 0;
  for (; w + 8 <= words; w += 8) {
    const __m256i a = load_words(x + w);
    for (int r = 0; r < R; ++r) {
      const __m256i bytes = byte_popcounts(_mm256_xor_si256(a, load_words(rows + r * words + w)));
      sums[r] = _mm256_add_epi64(sums[r], _mm256_sad_epu8(bytes, _mm256_setzero_si256()));
    }
  }
  for (int r = 0; r < R; ++r) {
    const __m128i half =
        _mm_add_epi64(_mm256_castsi256_si128(sums[r]), _mm256_extracti128_si256(sums[r], 1));
    int64_t count = _mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1);
    for (int64_t k = w; k < words; ++k)
      count += __builtin_popcount(static_cast<uint32_t>(x[k] ^ rows[r * words + k]));
    counts[r] = static_cast<int32_t>(count);
  }
}

}  // namespace bitgnn::cpu::avx2
