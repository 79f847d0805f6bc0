// Sums over neighbours in the cooperative kernel, for wide rows of products.
#pragma once

#include "whole_model/cuda/cooperative/integer_sums.cuh"

namespace bitgnn::cuda::whole_model {

// Sums of two features over a piece of edges, and of the factors if the products are odd.
template <bool kBytes, bool kOdd>
struct WideSums {
  float sum[2] = {}, ones = 0.0f;

  // Offsets of the features and of the factor in a row.
  struct Place {
    int word, shift, factor;
    __device__ Place(const StagePlan& plan, int feature)
        : word(word_place(feature / (kBytes ? 4 : 2))),
          shift(kBytes ? feature % 4 * 8 : 0),
          factor(word_place(plan.gathered_words - 1)) {}
  };

  __device__ __forceinline__ void add_edge(const uint32_t* neighbour, const Place& place) {
    const uint32_t word = neighbour[place.word] >> place.shift;
    const float factor = __uint_as_float(neighbour[place.factor]);
    sum[0] = __fmaf_rn(factor, half_of<kBytes>(word, 0), sum[0]);
    sum[1] = __fmaf_rn(factor, half_of<kBytes>(word, 1), sum[1]);
    if constexpr (kOdd) ones = __fadd_rn(ones, factor);
  }
  __device__ __forceinline__ void add(const WideSums& piece) {
    sum[0] = __fadd_rn(sum[0], piece.sum[0]);
    sum[1] = __fadd_rn(sum[1], piece.sum[1]);
    if constexpr (kOdd) ones = __fadd_rn(ones, piece.ones);
  }
  __device__ __forceinline__ WideSums of_lane(int lane) const {
    WideSums other;
    other.sum[0] = __shfl_sync(kFullWarp, sum[0], lane);
    other.sum[1] = __shfl_sync(kFullWarp, sum[1], lane);
    if constexpr (kOdd) other.ones = __shfl_sync(kFullWarp, ones, lane);
    return other;
  }
};

// Splits a part of a row of many edges over a warp: four lanes per piece, two features each. Each
// piece's lanes run one edge behind those of the previous piece, or all would read the same banks.
constexpr int kPartLanes = 4, kPartPieces = kWarp / kPartLanes, kPartFeatures = 2 * kPartLanes;

template <bool kBytes, bool kOdd>
__device__ __forceinline__ WideSums<kBytes, kOdd> sum_wide_part(const StagePlan& plan,
                                                                const uint32_t* neighbours,
                                                                int degree, int feature, int lane) {
  const int piece_words = plan.gathered_pieces * 4, number = lane / kPartLanes;
  const typename WideSums<kBytes, kOdd>::Place place(plan, feature);
  WideSums<kBytes, kOdd> total;
#pragma unroll 1
  for (int first = 0; first < degree; first += kPartPieces * kWidePiece) {
    const int begin = first + number * kWidePiece, edges = min(degree - begin, kWidePiece);
    const uint32_t* own = neighbours + (begin - number) * piece_words;
    WideSums<kBytes, kOdd> piece;
#pragma unroll 4
    for (int step = 0; step < kWidePiece + kPartPieces; ++step) {
      if (step >= number && step - number < edges) piece.add_edge(own, place);
      own += piece_words;
    }
    __syncwarp();
#pragma unroll
    for (int k = 0; k < kPartPieces; ++k) {
      const auto other = piece.of_lane(k * kPartLanes + lane % kPartLanes);
      if (first + k * kWidePiece < degree) total.add(other);
    }
  }
  return total;
}

// Rows of at most this many edges are summed by one warp.
constexpr int kAloneEdges = 2 * kWidePiece;

// Sums over wide rows of products to values, in the order of bspmm/narrow_sums.h for wide rows: a
// warp per row, two features per lane; longer rows are split into parts.
template <bool kBytes, bool kOdd>
__device__ __forceinline__ void sum_wide_integers(const StagePlan& plan, const Block& block,
                                                  const GatheredRows& rows, const SumTerms& terms,
                                                  int most_degree, float* out, int pitch, int warp,
                                                  int lane) {
  using Sums = WideSums<kBytes, kOdd>;
  const int features = plan.stage.size, piece_words = plan.gathered_pieces * 4;
  const auto store = [&](int row, int feature, const Sums& total) {
    float* to = out + row * pitch + feature;
#pragma unroll
    for (int k = 0; k < 2; ++k)
      if (feature + k < features)
        to[k] = sum_value(terms, block.row_factor[row], feature + k,
                          slots_sum<kOdd>(total.sum[k], total.ones));
  };
  if (most_degree > kAloneEdges)
    for_long_rows(block, rows.first, rows.last, kAloneEdges,
                  (features + kPartFeatures - 1) / kPartFeatures, stage_warps() - 1 - warp, lane,
                  [&](int row, int part) {
                    const int2 edges = rows.edges(block, row);
                    const int feature = part * kPartFeatures + lane % kPartLanes * 2;
                    const auto total = sum_wide_part<kBytes, kOdd>(
                        plan, rows.staged + edges.x * piece_words, edges.y, feature, lane);
                    if (lane < kPartLanes) store(row, feature, total);
                  });
#pragma unroll 1
  for (int row = rows.first + warp; row < rows.last; row += stage_warps()) {
    const int2 edges = rows.edges(block, row);
    if (edges.y > kAloneEdges) continue;
#pragma unroll 1
    for (int feature = 2 * lane; feature < features; feature += 2 * kWarp) {
      const typename Sums::Place place(plan, feature);
      const uint32_t* neighbour = rows.staged + edges.x * piece_words;
      Sums total;
#pragma unroll 1
      for (int left = edges.y; left > 0; left -= kWidePiece) {
        Sums piece;
#pragma unroll 4
        for (int edge = min(left, kWidePiece); edge > 0; --edge) {
          piece.add_edge(neighbour, place);
          neighbour += piece_words;
        }
        total.add(piece);
      }
      store(row, feature, total);
    }
  }
}

}  // namespace bitgnn::cuda::whole_model
