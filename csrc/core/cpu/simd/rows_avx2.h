// Rows of words on AVX2; same contract as rows_portable.h.
#pragma once

#include "core/cpu/simd/dots_avx2.h"
#include "core/cpu/simd/plain_rows.h"

namespace bitgnn::cpu::avx2 {

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
