// Dot products of packed rows in plain C++; the reference for what dots_avx2.h and dots_avx512.h
// do.
#pragma once

#include "bitgnn/cpu/simd_portable.h"

namespace bitgnn::cpu::portable {

constexpr int kTileRows = 4;
constexpr int kTilePanels = 1;
constexpr int64_t kParityWords = 16;  // from here on running parities pay

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

// A row of words to running parities, in place or not.
inline void running_parities(const int32_t* from, int64_t words, int32_t* to) {
  int32_t parity = 0;
  for (int64_t w = 0; w < words; ++w) {
    parity ^= from[w];
    to[w] = parity;
  }
}

// Calls emit(r, p, dot) with the 32 products size - 2 popcount(x[r] ^ panel[p]); both operands come
// as running parities over their words, see bmm_kernel.h.
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

}  // namespace bitgnn::cpu::portable
