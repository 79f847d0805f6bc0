// Rows of words: transposing weights to panels, row distances, gathering the words under a kernel
// window; the reference for rows_avx2.h and rows_avx512.h.
#pragma once

#include "core/cpu/simd/dots_portable.h"
#include "core/cpu/simd/plain_rows.h"

namespace bitgnn::cpu::portable {

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
