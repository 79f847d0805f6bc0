// Sums over neighbours in a cooperative kernel, of wide rows of products.
#pragma once

#include "bitgnn/cuda/cooperative_sums.cuh"

namespace bitgnn::cuda {

// The sum of a feature over edges [0, count) of at most a piece of a wide row, from its word in the
// first neighbour on; `ones` is that of the factors.
template <bool kBytes, bool kOdd>
__device__ __forceinline__ float sum_wide_piece(const uint32_t* neighbour, int feature, int count,
                                                int piece_words, int factor_place, float& ones) {
  constexpr int kPerWord = kBytes ? 4 : 2;
  const int place = word_place(feature / kPerWord);
  const int shift = feature % kPerWord * (kBytes ? 8 : 16);
  float sum = 0.0f;
  ones = 0.0f;
#pragma unroll 4
  for (int edge = 0; edge < count; ++edge) {
    const uint32_t word = neighbour[place] >> shift;
    const float factor = __uint_as_float(neighbour[factor_place]);
    const int half = kBytes ? static_cast<int8_t>(word) : static_cast<int16_t>(word);
    sum = __fmaf_rn(factor, __int2float_rn(half), sum);
    if constexpr (kOdd) ones = __fadd_rn(ones, factor);
    neighbour += piece_words;
  }
  return sum;
}

// Edges up to which a thread takes a feature of a row alone.
constexpr int kAloneEdges = 2 * kWidePiece;

// Values of sums over wide rows of products, in the order of narrow_sums.h for these: a thread a
// feature, of longer rows a thread a feature of a piece.
template <bool kBytes, bool kOdd>
__device__ __forceinline__ void sum_wide_integers(const StagePlan& plan, const Block& block,
                                                  const GatheredRows& rows, const SumTerms& terms,
                                                  float* out, int pitch, int warp, int lane) {
  constexpr int kColumns = 8, kPieces = kWarp / kColumns;  // of a warp
  const int features = plan.stage.size, piece_words = plan.gathered_pieces * 4;
  const int factor_place = word_place(plan.gathered_words - 1);
  const auto store = [&](int row, int feature, float total, float ones) {
    out[row * pitch + feature] =
        sum_value(terms, block.row_factor[row], feature, slots_sum<kOdd>(total, ones));
  };
#pragma unroll 1
  for (int i = threadIdx.x; i < (rows.last - rows.first) * features; i += stage_threads()) {
    const int in_rows = plan.by_size.quotient(i);
    const int row = rows.first + in_rows, feature = i - in_rows * features;
    const int2 edges = rows.edges(block, row);
    if (edges.y > kAloneEdges) continue;
    float total = 0.0f, total_ones = 0.0f;
#pragma unroll 1
    for (int first = 0; first < edges.y; first += kWidePiece) {
      float ones;
      const float sum = sum_wide_piece<kBytes, kOdd>(rows.staged + (edges.x + first) * piece_words,
                                                     feature, min(edges.y - first, kWidePiece),
                                                     piece_words, factor_place, ones);
      total = __fadd_rn(total, sum);
      if constexpr (kOdd) total_ones = __fadd_rn(total_ones, ones);
    }
    store(row, feature, total, total_ones);
  }
  for_long_rows(block, rows.first, rows.last, kAloneEdges, (features + kColumns - 1) / kColumns,
                warp, lane, [&](int row, int part) {
                  const int2 edges = rows.edges(block, row);
                  const int feature = min(part * kColumns + lane % kColumns, features - 1);
                  float total = 0.0f, total_ones = 0.0f;
#pragma unroll 1
                  for (int first = 0; first < edges.y; first += kPieces * kWidePiece) {
                    const int begin = first + lane / kColumns * kWidePiece;
                    float ones;
                    const float sum = sum_wide_piece<kBytes, kOdd>(
                        rows.staged + (edges.x + begin) * piece_words, feature,
                        min(edges.y - begin, kWidePiece), piece_words, factor_place, ones);
#pragma unroll
                    for (int piece = 0; piece < kPieces; ++piece) {
                      const int from = piece * kColumns + lane % kColumns;
                      total = __fadd_rn(total, __shfl_sync(kFullWarp, sum, from));
                      if constexpr (kOdd)
                        total_ones = __fadd_rn(total_ones, __shfl_sync(kFullWarp, ones, from));
                    }
                  }
                  if (lane < kColumns && part * kColumns + lane < features)
                    store(row, feature, total, total_ones);
                });
}

}  // namespace bitgnn::cuda
