// Dot products and distances of packed rows in plain C++; the reference for dots_avx2.h,
// dots_avx512.h and rows_avx512.h.
#pragma once

#include "core/cpu/simd/plain.h"
#include "core/cpu/simd/vectors_portable.h"

namespace bitgnn::cpu::portable {

constexpr int kTileRows = 4;
constexpr int kTilePanels = 1;
constexpr int64_t kParityWords = 16;  // running parities pay off from here on
constexpr int64_t kListedCost = 2;    // cost of a listed word, in words of parity_dots
constexpr int kScanRows = 4;          // rows whose distances are counted side by side

// Calls emit(r, p, dot) with the 32 products size - 2 popcount(x[r] ^ panel[p]).
template <int R, int P, class Emit>
inline void xor_dots(const int32_t* x, int64_t x_stride, const int32_t* panels, int64_t words,
                     int64_t size, const Emit& emit) {
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) {
      uint32_t acc[kWordBits] = {};
      const int32_t* panel = panels + p * words * kWordBits;
      for (int64_t w = 0; w < words; ++w) {
        const uint32_t a = static_cast<uint32_t>(x[r * x_stride + w]);
        for (int l = 0; l < kWordBits; ++l)
          acc[l] += popcount(a ^ static_cast<uint32_t>(panel[w * kWordBits + l]));
      }
      IntLanes dot;
      for (int l = 0; l < kWordBits; ++l)
        dot.v[l] = static_cast<int32_t>(static_cast<uint32_t>(size) - 2u * acc[l]);
      emit(r, p, dot);
    }
  }
}

// Calls emit(r, p, dot) with the 32 products size - 2 popcount(x[r] ^ panel[p]); both operands are
// running parities over their words, see bmm/cpu/bmm_kernel.h.
template <int R, int P, class Emit>
inline void parity_dots(const int32_t* x, int64_t x_stride, const int32_t* panels, int64_t words,
                        int64_t size, const Emit& emit) {
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) {
      uint32_t acc[kWordBits] = {}, last[kWordBits] = {};
      const int32_t* a = x + r * x_stride;
      const int32_t* panel = panels + p * words * kWordBits;
      const auto parity = [&](int64_t w, int l) {
        return static_cast<uint32_t>(a[w]) ^ static_cast<uint32_t>(panel[w * kWordBits + l]);
      };
      int64_t w = 0;
      for (; w + 2 <= words; w += 2) {
        for (int l = 0; l < kWordBits; ++l) {
          const uint32_t middle = parity(w, l), next = parity(w + 1, l);
          acc[l] += popcount((last[l] & ~middle) | (middle & ~next));
          last[l] = next;
        }
      }
      if (w < words) {
        for (int l = 0; l < kWordBits; ++l) {
          const uint32_t next = parity(w, l);
          acc[l] += popcount(last[l] & ~next);
          last[l] = next;
        }
      }
      IntLanes dot;
      for (int l = 0; l < kWordBits; ++l)
        dot.v[l] = static_cast<int32_t>(static_cast<uint32_t>(size) - 4u * acc[l] -
                                        2u * popcount(last[l]));
      emit(r, p, dot);
    }
  }
}

constexpr int kFixedRows = 1;

// Calls emit(r, dot) with the 32 dot products of int16 numbers in R windows, x_stride apart, with
// weights [runs, pairs, 32, 2]; run_at gives the offset of each run of pairs in a window.
template <int R, class Emit>
inline void fixed_dots(const int16_t* x, int64_t x_stride, const int64_t* run_at, int64_t runs,
                       int64_t pairs, const int16_t* w, const Emit& emit) {
  for (int r = 0; r < R; ++r) {
    IntLanes dot{};
    const int16_t* weight = w;
    for (int64_t run = 0; run < runs; ++run) {
      const int16_t* from = x + r * x_stride + run_at[run];
      for (int64_t k = 0; k < pairs; ++k, weight += 2 * kWordBits)
        for (int l = 0; l < kWordBits; ++l)
          dot.v[l] += from[2 * k] * weight[2 * l] + from[2 * k + 1] * weight[2 * l + 1];
    }
    emit(r, dot);
  }
}

// Writes the indices of the nonzero words to `places`, which has room for all; returns their
// number.
inline int64_t list_words(const int32_t* x, int64_t words, int32_t* places) {
  int64_t count = 0;
  for (int64_t w = 0; w < words; ++w) {
    places[count] = static_cast<int32_t>(w);
    count += x[w] != 0;
  }
  return count;
}

// The 32 sums base + add + 4 popcount(x[w] & panel word w) over the words listed in `places`.
inline IntLanes listed_dots(const int32_t* x, const int32_t* places, int64_t count,
                            const int32_t* panel, const int32_t* base, int32_t add) {
  IntLanes dots;
  for (int64_t l = 0; l < kWordBits; ++l) dots.v[l] = base[l] + add;
  for (int64_t k = 0; k < count; ++k) {
    const int32_t* b = panel + places[k] * kWordBits;
    for (int64_t l = 0; l < kWordBits; ++l) {
      const uint32_t common = static_cast<uint32_t>(x[places[k]] & b[l]);
      dots.v[l] += 4 * static_cast<int32_t>(popcount(common));
    }
  }
  return dots;
}

// Counts the bits in which x differs from each of R rows.
template <int R>
inline void distances(const int32_t* x, const int32_t* rows, int64_t words, int32_t* counts) {
  for (int r = 0; r < R; ++r) {
    uint32_t count = 0;
    for (int64_t w = 0; w < words; ++w)
      count += popcount(static_cast<uint32_t>(x[w] ^ rows[r * words + w]));
    counts[r] = static_cast<int32_t>(count);
  }
}

}  // namespace bitgnn::cpu::portable
