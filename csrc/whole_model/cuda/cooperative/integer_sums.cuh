// Sums over neighbours in the cooperative kernel, of products gathered in shared memory.
#pragma once

#include "whole_model/cuda/cooperative/sums.cuh"

namespace bitgnn::cuda::whole_model {

constexpr int kMostGroupEdges = 64;  // eight lanes sum rows of at most this many edges

// Eight features of a row of halved products, stored as bytes or 16-bit integers and followed by
// the row's factor.
constexpr int kHalves = kSumSlots;

// Converts half `number` of a word to float with a subtraction, which is faster than a conversion:
// the low bits of 2^23 plus an offset that makes the half positive are the half itself.
template <bool kBytes>
__device__ __forceinline__ float half_of(uint32_t word, int number) {
  constexpr uint32_t kOne = 0x4b000000;  // 2^23
  constexpr float kOffset = 8388608.0f + (kBytes ? 128.0f : 32768.0f);
  const uint32_t positive = word ^ (kBytes ? 0x80808080u : 0x80008000u);
  const int bytes = kBytes ? 0x7440 + number : number == 0 ? 0x7410 : 0x7432;
  return __fsub_rn(__uint_as_float(__byte_perm(positive, kOne, bytes)), kOffset);
}

template <bool kBytes>
__device__ __forceinline__ float halves_of(const uint32_t* row, int base, float (&half)[kHalves],
                                           int factor_place) {
  constexpr int kPerWord = kBytes ? 4 : 2;
  const int first = base / kPerWord;
#pragma unroll
  for (int w = 0; w < kHalves / kPerWord; ++w) {
    const uint32_t word = row[word_place(first + w)];
#pragma unroll
    for (int k = 0; k < kPerWord; ++k) half[w * kPerWord + k] = half_of<kBytes>(word, k);
  }
  return __uint_as_float(row[factor_place]);
}

// Folds the slots of bspmm/narrow_sums.h, one per lane of eight: s[i] += s[i + 4], and so on. Each
// lane ends up with the sum of the feature of its own number.
__device__ __forceinline__ float fold_sum_slots(float (&sum)[kHalves], int slot) {
#pragma unroll
  for (int distance = kSumSlots / 2; distance > 0; distance /= 2) {
    const bool upper = (slot & distance) != 0;
#pragma unroll
    for (int i = 0; i < distance; ++i) {
      const float given = upper ? sum[i] : sum[i + distance];
      const float kept = upper ? sum[i + distance] : sum[i];
      sum[i] = __fadd_rn(kept, __shfl_xor_sync(kFullWarp, given, distance));
    }
  }
  return sum[0];
}

// Terms that turn sums of halves into values: (row * scale) * sum + bias.
struct SumTerms {
  const float* scale;  // [features] or null
  const float* bias;
};

// kOdd: the products are sums of an odd number of signs.
template <bool kOdd>
__device__ __forceinline__ float slots_sum(float halves, float factors) {
  const float sum = __fmul_rn(2.0f, halves);
  return kOdd ? __fadd_rn(sum, factors) : sum;
}

__device__ __forceinline__ float sum_value(const SumTerms& terms, float row_factor, int feature,
                                           float sum) {
  const float scale =
      terms.scale != nullptr ? __fmul_rn(row_factor, terms.scale[feature]) : row_factor;
  const float value = __fmul_rn(scale, sum);
  return terms.bias != nullptr ? __fadd_rn(value, terms.bias[feature]) : value;
}

// Sums the products of a row of many edges with one warp; every eight lanes take two features.
template <bool kBytes, bool kOdd>
__device__ __forceinline__ void sum_row_integers(const StagePlan& plan, const Block& block,
                                                 const GatheredRows& rows, const SumTerms& terms,
                                                 int row, float* out, int lane) {
  constexpr int kPerWord = kBytes ? 4 : 2, kOwn = kHalves * kSumSlots / kWarp;
  static_assert(kOwn == 2, "two features share a word");
  const int features = plan.stage.size, piece_words = plan.gathered_pieces * 4;
  const int factor_place = word_place(plan.gathered_words - 1);
  const int slot = lane % kSumSlots;
  const int2 edges = rows.edges(block, row);
  const float row_factor = block.row_factor[row];
#pragma unroll 1
  for (int base = lane / kSumSlots * kOwn; base - lane / kSumSlots * kOwn < features;
       base += kHalves) {
    const int place = word_place(base / kPerWord), shift = kBytes ? base % kPerWord * 8 : 0;
    float total[kOwn] = {}, total_factors = 0.0f;
#pragma unroll 1
    for (int piece = 0; piece < edges.y; piece += kSumPiece) {
      const int end = min(edges.y, piece + static_cast<int>(kSumPiece));
      float sum[kOwn] = {}, factors = 0.0f;
      const uint32_t* neighbour = rows.staged + (edges.x + piece + slot) * piece_words;
#pragma unroll 4
      for (int edge = piece + slot; edge < end; edge += kSumSlots) {
        const uint32_t word = neighbour[place] >> shift;
        const float factor = __uint_as_float(neighbour[factor_place]);
        neighbour += kSumSlots * piece_words;
        sum[0] = __fmaf_rn(factor, half_of<kBytes>(word, 0), sum[0]);
        sum[1] = __fmaf_rn(factor, half_of<kBytes>(word, 1), sum[1]);
        if constexpr (kOdd) factors = __fadd_rn(factors, factor);
      }
      __syncwarp();
#pragma unroll
      for (int distance = kSumSlots / 2; distance > 0; distance /= 2) {
#pragma unroll
        for (int k = 0; k < kOwn; ++k)
          sum[k] = __fadd_rn(sum[k], __shfl_xor_sync(kFullWarp, sum[k], distance));
        if constexpr (kOdd)
          factors = __fadd_rn(factors, __shfl_xor_sync(kFullWarp, factors, distance));
      }
#pragma unroll
      for (int k = 0; k < kOwn; ++k) total[k] = __fadd_rn(total[k], sum[k]);
      if constexpr (kOdd) total_factors = __fadd_rn(total_factors, factors);
    }
    const int feature = base + slot;
    if (slot < kOwn && feature < features)
      out[feature] = sum_value(terms, row_factor, feature,
                               slots_sum<kOdd>(slot == 0 ? total[0] : total[1], total_factors));
  }
}

// Sums over products to values [row, feature] at `out` with row pitch `pitch`, in the order of
// bspmm/narrow_sums.h. Eight lanes share a row, one slot each, and take eight features at a time.
template <bool kBytes, bool kOdd>
__device__ __forceinline__ void sum_integers(const StagePlan& plan, const Block& block,
                                             const GatheredRows& rows, const SumTerms& terms,
                                             int most_degree, float* out, int pitch, int warp,
                                             int lane) {
  constexpr int kRows = kWarp / kSumSlots;
  const int features = plan.stage.size, piece_words = plan.gathered_pieces * 4;
  const int factor_place = word_place(plan.gathered_words - 1);
  const int slot = lane % kSumSlots;
  // Long rows come first, and start on other warps than the short ones.
  if (most_degree > kMostGroupEdges)
    for_long_rows(block, rows.first, rows.last, kMostGroupEdges, 1, stage_warps() - 1 - warp, lane,
                  [&](int row, int) {
                    sum_row_integers<kBytes, kOdd>(plan, block, rows, terms, row, out + row * pitch,
                                                   lane);
                  });
#pragma unroll 1
  for (int first = rows.first + warp * kRows; first < rows.last; first += stage_warps() * kRows) {
    const int row = min(first + lane / kSumSlots, rows.last - 1);
    int2 edges = rows.edges(block, row);
    const bool is_own = edges.y <= kMostGroupEdges && first + lane / kSumSlots < rows.last;
    if (!is_own) edges.y = 0;
    const int longest = __reduce_max_sync(kFullWarp, edges.y);
    const float row_factor = block.row_factor[row];
#pragma unroll 1
    for (int base = 0; base < features; base += kHalves) {
      float total = 0.0f, total_factors = 0.0f;
#pragma unroll 1
      for (int piece = 0; piece < longest; piece += kSumPiece) {
        const int end = min(edges.y, piece + static_cast<int>(kSumPiece));
        float sum[kHalves] = {}, factors = 0.0f;
        const uint32_t* neighbour = rows.staged + (edges.x + piece + slot) * piece_words;
#pragma unroll 2
        for (int edge = piece + slot; edge < end; edge += kSumSlots) {
          float half[kHalves];
          const float factor = halves_of<kBytes>(neighbour, base, half, factor_place);
          neighbour += kSumSlots * piece_words;
#pragma unroll
          for (int k = 0; k < kHalves; ++k) sum[k] = __fmaf_rn(factor, half[k], sum[k]);
          if constexpr (kOdd) factors = __fadd_rn(factors, factor);
        }
        __syncwarp();
        const float folded = fold_sum_slots(sum, slot);
        if constexpr (kOdd) {
#pragma unroll
          for (int distance = kSumSlots / 2; distance > 0; distance /= 2)
            factors = __fadd_rn(factors, __shfl_xor_sync(kFullWarp, factors, distance));
        }
        if (piece < edges.y) {
          total = __fadd_rn(total, folded);
          total_factors = __fadd_rn(total_factors, factors);
        }
      }
      const int feature = base + slot;
      if (feature < features && is_own)
        out[row * pitch + feature] =
            sum_value(terms, row_factor, feature, slots_sum<kOdd>(total, total_factors));
    }
  }
}

}  // namespace bitgnn::cuda::whole_model
