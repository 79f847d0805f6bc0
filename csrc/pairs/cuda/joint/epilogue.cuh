// Epilogue that adds a row's sum, held as counts in bit planes, to the product of the same row and
// compares the result.
#pragma once

#include "bmm/cuda/many_rows.cuh"

namespace bitgnn::cuda::pairs {

constexpr int kJoinColumns = 64;  // outputs of a warp's pass over a slab
constexpr int kJoinWords = kJoinColumns / static_cast<int>(kWordBits);

// What a row's sum contributes to its outputs.
struct JoinRow {
  int degree;   // negative for rows that are handled elsewhere or do not exist
  float scale;  // 1 if there is none
  int planes;   // number of planes of its counts
};

// Counts of a lane's columns out of 64, one byte each: byte j of [half, word, e] belongs to row g +
// 8 * half and column 32 * word + 8 * j + 2 * q + e.
using JoinBytes = uint32_t[2][2][2];

// Adds up planes [first, end), at most eight, of two words; `rows` are rows g and g + 8.
__device__ __forceinline__ void add_planes(JoinBytes& bytes, const uint32_t* const (&rows)[2],
                                           int first, int end, int row_words, int quad) {
  constexpr uint32_t kLowest = 0x01010101u;
  uint32_t weight = 1;
  for (int p = first; p < end; ++p, weight *= 2) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint2 pair = *reinterpret_cast<const uint2*>(rows[half] + p * row_words);
#pragma unroll
      for (int word = 0; word < 2; ++word) {
        const uint32_t plane = (word == 0 ? pair.x : pair.y) >> (2 * quad);
#pragma unroll
        for (int e = 0; e < 2; ++e) bytes[half][word][e] += (plane >> e & kLowest) * weight;
      }
    }
  }
}

// Byte `j` as float32: 2^23 + byte through the mantissa, minus 2^23.
__device__ __forceinline__ float float_of_byte(uint32_t bytes, int j) {
  constexpr uint32_t kBase = 0x4b000000u;
  return __fadd_rn(__uint_as_float(__byte_perm(bytes, kBase, 0x7440 | j)), -8388608.0f);
}

// A lane's bits of product + row sum for 64 columns, in the order of value_bits().
template <bool kHigh>
__device__ __forceinline__ uint32_t join_bits(const bmm::ColumnTable<kJoinColumns>& table,
                                              const float* sum_bias, const bmm::SlabRows& rows,
                                              const JoinRow (&joined)[2], const JoinBytes& low,
                                              const JoinBytes& high,
                                              const int32_t (&sum)[kJoinColumns / 2], int quad) {
  const float degrees[2] = {__int2float_rn(joined[0].degree), __int2float_rn(joined[1].degree)};
  uint32_t bits = 0;
#pragma unroll
  for (int j = 0; j < kJoinColumns / 8; ++j) {
    const int at = j * 8 + quad * 2;
    const int2 terms = *reinterpret_cast<const int2*>(table.term + at);
    const float2 scales = *reinterpret_cast<const float2*>(table.scale + at);
    const float2 biases = *reinterpret_cast<const float2*>(table.bias + at);
    const float2 thresholds = *reinterpret_cast<const float2*>(table.threshold + at);
    const float2 added = *reinterpret_cast<const float2*>(sum_bias + at);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const bool even = e == 0;
        const int32_t dot =
            4 * sum[j * 4 + half * 2 + e] + ((even ? terms.x : terms.y) + rows.term[half]);
        float count = float_of_byte(low[half][j / 4][e], j % 4);
        if constexpr (kHigh)
          count = __fmaf_rn(256.0f, float_of_byte(high[half][j / 4][e], j % 4), count);
        // Exact: counts and degrees are small integers.
        const float total = __fmaf_rn(2.0f, count, -degrees[half]);
        const float addend =
            __fadd_rn(__fmul_rn(joined[half].scale, total), even ? added.x : added.y);
        const float v = __fadd_rn(bmm::slab_value(rows.scale[half], even ? scales.x : scales.y,
                                                  even ? biases.x : biases.y, dot),
                                  addend);
        if (v >= (even ? thresholds.x : thresholds.y)) bits |= 1u << (16 * half + 2 * j + e);
      }
    }
  }
  return bits;
}

// Writes two words of each row of a slab, except for rows handled elsewhere: lane q of a quad holds
// the words of row g + 8 * q.
__device__ __forceinline__ void store_joined(const bmm::ColumnTable<kJoinColumns>& table,
                                             uint2 words, const JoinRow* joined, int32_t* to,
                                             int64_t pitch, int64_t columns, int lane) {
  const int row = fragment_group(lane) + fragment_quad(lane) * 8;
  if (fragment_quad(lane) > 1 || columns <= 0 || joined[row].degree < 0) return;
  const uint32_t x = (words.x ^ table.flip[0]) & table.exists[0];
  const uint32_t y = (words.y ^ table.flip[1]) & table.exists[1];
  to += row * pitch;
  if ((pitch & 1) == 0) {
    *reinterpret_cast<uint2*>(to) = make_uint2(x, y);
  } else {
    to[0] = static_cast<int32_t>(x);
    if (columns > kWordBits) to[1] = static_cast<int32_t>(y);
  }
}

}  // namespace bitgnn::cuda::pairs
