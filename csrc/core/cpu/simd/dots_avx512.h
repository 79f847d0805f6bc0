// Dot products of packed rows on AVX-512; same contract as dots_portable.h.
#pragma once

#include "core/cpu/simd/vectors_avx512.h"

namespace bitgnn::cpu::avx512 {

constexpr int kTileRows = 4;  // 4 x 2 accumulators: larger tiles spill and measure slower
constexpr int kTilePanels = 1;
constexpr int64_t kParityWords = 16;  // running parities pay off from here on
constexpr int64_t kListedCost = 2;    // cost of a listed word, in words of parity_dots
constexpr int kScanRows = 16;         // rows whose distances are counted side by side

// Calls emit(r, p, dot) with the 32 products size - 2 popcount(x[r] ^ panel[p]) still in registers.
template <int R, int P, class Emit>
inline void xor_dots(const int32_t* x, int64_t x_stride, const int32_t* panels, int64_t words,
                     int64_t size, const Emit& emit) {
  __m512i acc[R][2 * P];
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < 2 * P; ++c) acc[r][c] = _mm512_setzero_si512();
  const int64_t panel_stride = words * kWordBits;
  for (int64_t w = 0; w < words; ++w) {
    __m512i b[2 * P];
    for (int p = 0; p < P; ++p) {
      b[2 * p] = _mm512_loadu_si512(panels + p * panel_stride + w * kWordBits);
      b[2 * p + 1] = _mm512_loadu_si512(panels + p * panel_stride + w * kWordBits + 16);
    }
    for (int r = 0; r < R; ++r) {
      const __m512i a = _mm512_set1_epi32(x[r * x_stride + w]);
      for (int c = 0; c < 2 * P; ++c)
        acc[r][c] = _mm512_add_epi32(acc[r][c], _mm512_popcnt_epi32(_mm512_xor_si512(a, b[c])));
    }
  }
  const __m512i total = _mm512_set1_epi32(static_cast<int32_t>(size));
#pragma GCC unroll 8  // indices known at compile time keep the accumulators in registers
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p)
      emit(r, p,
           IntLanes{_mm512_sub_epi32(total, _mm512_slli_epi32(acc[r][2 * p], 1)),
                    _mm512_sub_epi32(total, _mm512_slli_epi32(acc[r][2 * p + 1], 1))});
}

// Turns 16 words into running parities that continue from `before`: a prefix XOR in log steps.
inline __m512i parity_prefix(__m512i v, __m512i* before) {
  const __m512i zero = _mm512_setzero_si512();
  v = _mm512_xor_si512(v, _mm512_alignr_epi32(v, zero, 15));
  v = _mm512_xor_si512(v, _mm512_alignr_epi32(v, zero, 14));
  v = _mm512_xor_si512(v, _mm512_alignr_epi32(v, zero, 12));
  v = _mm512_xor_si512(v, _mm512_alignr_epi32(v, zero, 8));
  v = _mm512_xor_si512(v, *before);
  *before = _mm512_permutexvar_epi32(_mm512_set1_epi32(15), v);
  return v;
}

// Turns a row of words into running parities, in place or not.
inline void running_parities(const int32_t* from, int64_t words, int32_t* to) {
  __m512i before = _mm512_setzero_si512();
  int64_t w = 0;
  for (; w + 16 <= words; w += 16)
    _mm512_storeu_si512(to + w, parity_prefix(_mm512_loadu_si512(from + w), &before));
  if (w < words) {
    const auto rest = static_cast<__mmask16>((1 << (words - w)) - 1);
    _mm512_mask_storeu_epi32(to + w, rest,
                             parity_prefix(_mm512_maskz_loadu_epi32(rest, from + w), &before));
  }
}

// A tile of R rows by C vectors of 16 outputs in parity_dots.
template <int R, int C>
struct ParityTile {
  const int32_t* x;
  int64_t x_stride;
  const int32_t* panels;
  int64_t panel_stride;
  __m512i carries[R][C];  // popcounts so far

  inline __m512i load(int c, int64_t w) const {
    return _mm512_loadu_si512(panels + c / 2 * panel_stride + w * kWordBits + c % 2 * 16);
  }
  inline __m512i broadcast(int r, int64_t w) const {
    return _mm512_set1_epi32(x[r * x_stride + w]);
  }

  // Adds words w and w + 1, continuing from the parities `from`, or starting anew if kFirst; leaves
  // the new parities in `to`. Alternating between two arrays avoids the copies that one would need.
  template <bool kFirst>
  inline void add_pair(int64_t w, const __m512i (&from)[R][C], __m512i (&to)[R][C]) {
    __m512i b0[C], b1[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      b0[c] = load(c, w);
      b1[c] = load(c, w + 1);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512i a0 = broadcast(r, w), a1 = broadcast(r, w + 1);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        const __m512i middle = _mm512_xor_si512(a0, b0[c]);
        to[r][c] = _mm512_xor_si512(a1, b1[c]);
        if constexpr (kFirst) {
          carries[r][c] = _mm512_popcnt_epi32(_mm512_andnot_si512(to[r][c], middle));
        } else {
          // 0x74 is (from & ~middle) | (middle & ~to).
          const __m512i carry = _mm512_ternarylogic_epi32(from[r][c], middle, to[r][c], 0x74);
          carries[r][c] = _mm512_add_epi32(carries[r][c], _mm512_popcnt_epi32(carry));
        }
        asm volatile("" : "+v"(carries[r][c]), "+v"(to[r][c]));  // or GCC reorders until it spills
      }
    }
  }
  inline void add_last(int64_t w, __m512i (&parity)[R][C]) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        const __m512i next = _mm512_xor_si512(broadcast(r, w), load(c, w));
        const __m512i carry = _mm512_andnot_si512(next, parity[r][c]);
        carries[r][c] = _mm512_add_epi32(carries[r][c], _mm512_popcnt_epi32(carry));
        parity[r][c] = next;
      }
    }
  }
  inline void clear(__m512i (&parity)[R][C]) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) carries[r][c] = parity[r][c] = _mm512_setzero_si512();
  }
};

// Calls emit(r, p, dot) with the 32 products still in registers; operands are running parities.
template <int R, int P, class Emit>
inline void parity_dots(const int32_t* x, int64_t x_stride, const int32_t* panels, int64_t words,
                        int64_t size, const Emit& emit) {
  constexpr int C = 2 * P;
  ParityTile<R, C> tile{x, x_stride, panels, words * kWordBits, {}};
  __m512i parity[R][C], other[R][C];
  int64_t w = 0;
  if (words >= 4) {
    tile.template add_pair<true>(0, parity, other);
    tile.template add_pair<false>(2, other, parity);
    for (w = 4; w + 4 <= words; w += 4) {
      tile.template add_pair<false>(w, parity, other);
      tile.template add_pair<false>(w + 2, other, parity);
    }
  } else if (words >= 2) {
    tile.template add_pair<true>(0, other, parity);
    w = 2;
  } else {
    tile.clear(parity);
  }
  for (; w < words; ++w) tile.add_last(w, parity);
  const __m512i total = _mm512_set1_epi32(static_cast<int32_t>(size));
  const auto dot = [&](int r, int c) {  // adds instead of shifts: every vector port executes them
    __m512i count = _mm512_add_epi32(tile.carries[r][c], tile.carries[r][c]);
    count = _mm512_add_epi32(count, _mm512_popcnt_epi32(parity[r][c]));
    return _mm512_sub_epi32(_mm512_sub_epi32(total, count), count);
  };
#pragma GCC unroll 8  // indices known at compile time keep all arrays in registers
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) emit(r, p, IntLanes{dot(r, 2 * p), dot(r, 2 * p + 1)});
}

constexpr int kFixedRows = 8;

template <int R, class Emit>
inline void fixed_dots(const int16_t* x, int64_t x_stride, const int64_t* run_at, int64_t runs,
                       int64_t pairs, const int16_t* w, const Emit& emit) {
  __m512i lo[R], hi[R];
  for (int r = 0; r < R; ++r) lo[r] = hi[r] = _mm512_setzero_si512();
  for (int64_t run = 0; run < runs; ++run) {
    const int16_t* from = x + run_at[run];
    for (int64_t k = 0; k < pairs; ++k, from += 2, w += 2 * kWordBits) {
      const __m512i w_lo = _mm512_loadu_si512(w), w_hi = _mm512_loadu_si512(w + kWordBits);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        int32_t pair;
        std::memcpy(&pair, from + r * x_stride, sizeof(pair));
        const __m512i v = _mm512_set1_epi32(pair);
        lo[r] = _mm512_add_epi32(lo[r], _mm512_madd_epi16(v, w_lo));
        hi[r] = _mm512_add_epi32(hi[r], _mm512_madd_epi16(v, w_hi));
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) emit(r, IntLanes{lo[r], hi[r]});
}

// Writes the indices of the nonzero words to `places`, which has room for all; returns their
// number.
inline int64_t list_words(const int32_t* x, int64_t words, int32_t* places) {
  __m512i place = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  int64_t count = 0;
  for (int64_t w = 0; w < words; w += 16) {
    const auto valid = static_cast<__mmask16>(words - w < 16 ? (1 << (words - w)) - 1 : 0xffff);
    const __m512i v = _mm512_maskz_loadu_epi32(valid, x + w);
    const __mmask16 held = _mm512_test_epi32_mask(v, v);
    const auto found = static_cast<uint32_t>(__builtin_popcount(held));
    const auto listed = static_cast<__mmask16>((1u << found) - 1u);
    _mm512_mask_storeu_epi32(places + count, listed, _mm512_maskz_compress_epi32(held, place));
    count += found;
    place = _mm512_add_epi32(place, _mm512_set1_epi32(16));
  }
  return count;
}

// The 32 sums base + add + 4 popcount(x[w] & panel word w) over the words listed in `places`.
inline IntLanes listed_dots(const int32_t* x, const int32_t* places, int64_t count,
                            const int32_t* panel, const int32_t* base, int32_t add) {
  __m512i lo = _mm512_setzero_si512(), hi = lo;
  for (int64_t k = 0; k < count; ++k) {
    const int32_t* b = panel + places[k] * kWordBits;
    const __m512i a = _mm512_set1_epi32(x[places[k]]);
    const auto common = [&](int64_t at) {
      return _mm512_popcnt_epi32(_mm512_and_si512(a, _mm512_loadu_si512(b + at)));
    };
    lo = _mm512_add_epi32(lo, common(0));
    hi = _mm512_add_epi32(hi, common(16));
  }
  const __m512i added = _mm512_set1_epi32(add);
  const auto finish = [&](__m512i sum, const int32_t* from) {
    return _mm512_add_epi32(_mm512_add_epi32(_mm512_loadu_si512(from), added),
                            _mm512_slli_epi32(sum, 2));
  };
  return {finish(lo, base), finish(hi, base + 16)};
}

}  // namespace bitgnn::cpu::avx512
