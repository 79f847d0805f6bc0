// Transposes weights to panels and gathers the words under a kernel window, in loops that compilers
// can vectorise; AVX-512 has its own in rows_avx512.h.
#pragma once

#include "conv/cpu/window_part.h"
#include "core/cpu/simd/plain_parities.h"

namespace bitgnn::cpu::BITGNN_ISA {

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

}  // namespace bitgnn::cpu::BITGNN_ISA
