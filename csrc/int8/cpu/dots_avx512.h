// 8-bit primitives on AVX-512 with VNNI; same contract as dots_wide.h. An instruction multiplies
// unsigned by signed bytes, so panels hold weight + 128 and a row's products start at
// -128 * (sum of its codes).
#pragma once

#include "core/cpu/simd/rows_avx512.h"

namespace bitgnn::cpu::avx512 {

constexpr int64_t kCodeBytes = 1;
constexpr int64_t kCodeStep = kInt8RowBytes;
constexpr int kCodeTileRows = 8;

inline __m128i to_codes(__m512 v) {
  const __mmask16 numbers = _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q);
  const __m512 largest = _mm512_set1_ps(kLargestCode), least = _mm512_set1_ps(-kLargestCode);
  v = _mm512_maskz_min_ps(numbers, _mm512_max_ps(v, least), largest);
  return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v));
}

inline void store_codes(int8_t* p, const Lanes& v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_codes(v.lo));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16), to_codes(v.hi));
}

inline uint32_t ge_mask(const IntLanes& a, const IntLanes& b) {
  const __mmask16 lo = _mm512_cmp_epi32_mask(a.lo, b.lo, _MM_CMPINT_NLT);
  const __mmask16 hi = _mm512_cmp_epi32_mask(a.hi, b.hi, _MM_CMPINT_NLT);
  // Joined as masks: GCC 12 stores 16 bits of one that it has no register for, but loads 32.
  return _cvtmask32_u32(_mm512_kunpackw(hi, lo));
}

inline void make_code_panel(const int8_t* weight, int64_t outputs, int64_t pitch, void* panel) {
  const int64_t words = pitch / 4;
  auto* to = static_cast<int32_t*>(panel);
  transpose_lanes(reinterpret_cast<const int32_t*>(weight), outputs, words, to);
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(0x80));
  for (int64_t k = 0; k < words * kWordBits; k += 16)
    _mm512_storeu_si512(to + k, _mm512_xor_si512(_mm512_loadu_si512(to + k), offset));
}

// -128 times the sum of a row's codes, which may wrap around as the products that it starts do.
inline int32_t code_start(const int8_t* codes, int64_t pitch) {
  __m512i sum = _mm512_setzero_si512();
  const __m512i factor = _mm512_set1_epi8(static_cast<char>(0x80));
  for (int64_t k = 0; k < pitch; k += 64) {
    const int64_t left = pitch - k;
    const __mmask64 valid = left < 64 ? (uint64_t{1} << left) - 1 : ~uint64_t{0};
    sum = _mm512_dpbusd_epi32(sum, factor, _mm512_maskz_loadu_epi8(valid, codes + k));
  }
  return static_cast<int32_t>(0u - static_cast<uint32_t>(_mm512_reduce_add_epi32(sum)));
}

class CodeRows {
 public:
  static int64_t scratch(int64_t rows, int64_t) { return rows; }
  CodeRows(const int8_t* codes, int64_t rows, int64_t pitch, int32_t* scratch)
      : codes_(codes), pitch_(pitch), starts_(scratch) {
    for (int64_t r = 0; r < rows; ++r) scratch[r] = code_start(codes + r * pitch, pitch);
  }

  void dots(int64_t row, int64_t count, const void* panel, int32_t* to) const {
    if (count == kCodeTileRows) return tile<kCodeTileRows>(row, panel, to);
    for (int64_t r = 0; r < count; ++r) tile<1>(row + r, panel, to + r * kWordBits);
  }

 private:
  // No code follows the loop but stores: GCC would move parts of an epilogue into it.
  template <int R>
  void tile(int64_t row, const void* panel, int32_t* to) const {
    const auto* w = static_cast<const char*>(panel);
    const int8_t* x = codes_ + row * pitch_;
    __m512i lo[R], hi[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) lo[r] = hi[r] = _mm512_set1_epi32(starts_[row + r]);
    for (int64_t k = 0; k < pitch_; k += 4, w += 128) {
      const __m512i w_lo = _mm512_loadu_si512(w), w_hi = _mm512_loadu_si512(w + 64);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        int32_t four;
        std::memcpy(&four, x + r * pitch_ + k, sizeof(four));
        const __m512i v = _mm512_set1_epi32(four);
        lo[r] = _mm512_dpbusd_epi32(lo[r], w_lo, v);
        hi[r] = _mm512_dpbusd_epi32(hi[r], w_hi, v);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) store_ints(to + r * kWordBits, {lo[r], hi[r]});
  }

  const int8_t* codes_;
  int64_t pitch_;
  const int32_t* starts_;
};

// Products of one row with `outputs` rows of weights as they are.
inline void code_dots_in_place(const int8_t* x, const int8_t* weight, int64_t outputs,
                               int64_t pitch, int32_t* dots) {
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(0x80));
  for (int64_t o = 0; o < outputs; ++o, weight += pitch) {
    __m512i sum = _mm512_setzero_si512(), excess = _mm512_setzero_si512();
    for (int64_t k = 0; k < pitch; k += 64) {
      const int64_t left = pitch - k;
      const __mmask64 valid = left < 64 ? (uint64_t{1} << left) - 1 : ~uint64_t{0};
      const __m512i w = _mm512_maskz_loadu_epi8(valid, weight + k);
      const __m512i v = _mm512_xor_si512(_mm512_maskz_loadu_epi8(valid, x + k), offset);
      sum = _mm512_dpbusd_epi32(sum, v, w);
      excess = _mm512_dpbusd_epi32(excess, offset, w);
    }
    dots[o] = _mm512_reduce_add_epi32(_mm512_sub_epi32(sum, excess));
  }
}

}  // namespace bitgnn::cpu::avx512
