// Primitives of rows of words in plain C++, in loops that compilers can vectorise; AVX-512 has its
// own in dots_avx512.h, rows_avx512.h and narrow_avx512.h.
#pragma once

#include <cstdint>

#include "core/common.h"
#include "core/cpu/simd/window_part.h"

namespace bitgnn::cpu::BITGNN_ISA {

// Turns a row of words into running parities, in place or not.
inline void running_parities(const int32_t* from, int64_t words, int32_t* to) {
  int32_t parity = 0;
  for (int64_t w = 0; w < words; ++w) {
    parity ^= from[w];
    to[w] = parity;
  }
}

constexpr int64_t kPartWords = int64_t{1} << 40;  // window parts need not be split

// Transposes rows [lanes, words] to [words, 32], with zeros for missing lanes. Blocks of words of
// all rows stay in L1.
inline void transpose_lanes(const int32_t* rows, int64_t lanes, int64_t words, int32_t* to) {
  constexpr int64_t kBlock = 16;
  for (int64_t begin = 0; begin < words; begin += kBlock) {
    const int64_t end = words - begin < kBlock ? words : begin + kBlock;
    for (int64_t l = 0; l < lanes; ++l)
      for (int64_t k = begin; k < end; ++k) to[k * kWordBits + l] = rows[l * words + k];
    for (int64_t k = begin; k < end; ++k)
      for (int64_t l = lanes; l < kWordBits; ++l) to[k * kWordBits + l] = 0;
  }
}

// Assembles the parts of a window, as running parities if kParities. May write up to the next
// multiple of 16 words.
template <bool kParities>
inline void read_window(const int32_t* window, const WindowPart* parts, int64_t count,
                        int64_t words, int32_t* row) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = 0; k < parts[i].words; ++k) row[parts[i].at + k] = window[parts[i].from + k];
  if constexpr (kParities) running_parities(row, words, row);
}

// Hamming distances of eight outputs from a row, counted one pair of words at a time.
struct EightCounts {
  uint64_t v[8];
};

inline EightCounts zero_counts() { return {}; }
inline void count_differences(EightCounts& counts, uint64_t x, const uint64_t* w) {
  for (int l = 0; l < 8; ++l) counts.v[l] += static_cast<uint64_t>(__builtin_popcountll(x ^ w[l]));
}
// Stores the halves of the first 4 or all 8 products, which are size - 2 count.
template <int N>
inline void store_halves(int32_t* p, const EightCounts& counts, int64_t size) {
  for (int l = 0; l < N; ++l)
    p[l] = static_cast<int32_t>((size - 2 * static_cast<int64_t>(counts.v[l])) >> 1);
}
template <int N>
inline void store_halves(float* p, const EightCounts& counts, int64_t size) {
  int32_t halves[N];
  store_halves<N>(halves, counts, size);
  for (int l = 0; l < N; ++l) p[l] = static_cast<float>(halves[l]);
}

}  // namespace bitgnn::cpu::BITGNN_ISA
