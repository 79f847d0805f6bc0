// Rows of words on AVX2; same contract as rows_avx2.h.
#pragma once

#include "bitgnn/cpu/dots_avx2.h"
#include "bitgnn/cpu/window_part.h"

namespace bitgnn::cpu::avx2 {

constexpr int64_t kPartWords = int64_t{1} << 40;  // parts of a window need not be cut

// Some words of all rows at a time stay in L1.
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

template <bool kParities>
inline void read_window(const int32_t* window, const WindowPart* parts, int64_t count,
                        int64_t words, int32_t* row) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = 0; k < parts[i].words; ++k) row[parts[i].at + k] = window[parts[i].from + k];
  if constexpr (kParities) running_parities(row, words, row);
}

}  // namespace bitgnn::cpu::avx2
