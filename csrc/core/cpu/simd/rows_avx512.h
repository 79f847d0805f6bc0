// Rows of words on AVX-512; same contract as plain.h and dots_portable.h.
#pragma once

#include "core/cpu/simd/dots_avx512.h"
#include "core/cpu/simd/window_part.h"

namespace bitgnn::cpu::avx512 {

constexpr int64_t kPartWords = 16;  // window parts do not cross a vector of the row

// Transposes 16 x 16 words: interleaves words, then pairs, then moves 128-bit quarters into place.
inline void transpose_square(__m512i (&v)[16]) {
  __m512i t[16], u[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    u[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    u[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    u[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    u[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i even_low = _mm512_shuffle_i32x4(u[i], u[4 + i], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(u[i], u[4 + i], 0xdd);
    const __m512i even_high = _mm512_shuffle_i32x4(u[8 + i], u[12 + i], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(u[8 + i], u[12 + i], 0xdd);
    v[i] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    v[4 + i] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    v[8 + i] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    v[12 + i] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
}

inline void transpose_lanes(const int32_t* rows, int64_t lanes, int64_t words, int32_t* to) {
  for (int64_t half = 0; half < kWordBits; half += 16) {
    for (int64_t w = 0; w < words; w += 16) {
      const int64_t count = words - w < 16 ? words - w : 16;
      const auto valid = static_cast<__mmask16>((1u << count) - 1u);
      __m512i v[16];
#pragma GCC unroll 16
      for (int l = 0; l < 16; ++l) {
        v[l] = half + l < lanes ? _mm512_maskz_loadu_epi32(valid, rows + (half + l) * words + w)
                                : _mm512_setzero_si512();
      }
      transpose_square(v);
      int32_t* const block = to + w * kWordBits + half;
#pragma GCC unroll 16
      for (int k = 0; k < 16; ++k)
        if (k < count) _mm512_storeu_si512(block + k * kWordBits, v[k]);
    }
  }
}

// The sums of 16 vectors, one a lane: adds up words, pairs and 128-bit quarters in a tree.
inline __m512i lane_sums(const __m512i (&v)[16]) {
  __m512i quarters[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i* const from = v + 4 * i;
    const __m512i first = _mm512_add_epi32(_mm512_unpacklo_epi32(from[0], from[1]),
                                           _mm512_unpackhi_epi32(from[0], from[1]));
    const __m512i second = _mm512_add_epi32(_mm512_unpacklo_epi32(from[2], from[3]),
                                            _mm512_unpackhi_epi32(from[2], from[3]));
    quarters[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(first, second),
                                   _mm512_unpackhi_epi64(first, second));
  }
  const auto halve = [](__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
  };
  return halve(halve(quarters[0], quarters[1]), halve(quarters[2], quarters[3]));
}

template <int R>
inline void distances(const int32_t* x, const int32_t* rows, int64_t words, int32_t* counts) {
  __m512i sums[R];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  for (int64_t w = 0; w < words; w += 16) {
    const int64_t left = words - w;
    const auto valid = static_cast<__mmask16>(left < 16 ? (1u << left) - 1u : 0xffffu);
    const __m512i a = _mm512_maskz_loadu_epi32(valid, x + w);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const __m512i b = _mm512_maskz_loadu_epi32(valid, rows + r * words + w);
      sums[r] = _mm512_add_epi32(sums[r], _mm512_popcnt_epi32(_mm512_xor_si512(a, b)));
    }
  }
  if constexpr (R == 16) {
    _mm512_storeu_si512(counts, lane_sums(sums));
  } else {
    for (int r = 0; r < R; ++r) counts[r] = _mm512_reduce_add_epi32(sums[r]);
  }
}

// Loads the words of a part into their lanes of the vector; masked-off lanes are never read, so the
// address may precede the image.
template <bool kParities>
inline void read_window(const int32_t* window, const WindowPart* parts, int64_t count,
                        int64_t words, int32_t* row) {
  __m512i before = _mm512_setzero_si512();
  const WindowPart* const end = parts + count;
  for (int64_t w = 0; w < words; w += 16) {
    __m512i v = _mm512_setzero_si512();
    for (; parts < end && parts->at < w + 16; ++parts) {
      const int64_t lane = parts->at - w;
      const auto held = static_cast<__mmask16>(((1u << parts->words) - 1u) << lane);
      v = _mm512_mask_loadu_epi32(v, held, window + parts->from - lane);
    }
    if constexpr (kParities) v = parity_prefix(v, &before);
    _mm512_storeu_si512(row + w, v);
  }
}

}  // namespace bitgnn::cpu::avx512
