// Sums over neighbours in the cooperative kernel, of packed rows gathered in shared memory.
#pragma once

#include "bspmm/cuda/count_planes.cuh"
#include "whole_model/cuda/cooperative/rows.cuh"

namespace bitgnn::cuda::whole_model {

constexpr int kRowLanes = 8;    // lanes that count a word of a row together
constexpr int kBatchEdges = 4;  // edges that a lane adds at once
constexpr int kFewPlanes = 3;   // planes that hold one batch
constexpr int kManyPlanes = 5;  // planes that hold several
constexpr int kFewEdges = kBatchEdges * kRowLanes;
constexpr int kManyEdges = ((1 << kManyPlanes) / kBatchEdges - 1) * kFewEdges;
constexpr int kLanePlanes = 4;  // planes of a lane that counts a part of a longer row
constexpr int kLaneEdges = 8;   // edges that such a lane adds at once

// The bit of a sum of +-1: `count` of `degree` neighbours have it set.
__device__ __forceinline__ bool sum_bit(int count, int degree, float factor, float threshold) {
  return __fmul_rn(factor, __int2float_rn(2 * count - degree)) >= threshold;
}

// Rows [first, last) of the block, whose edges from `begin` on were gathered in `staged`.
struct GatheredRows {
  int first, last, begin;
  const uint32_t* staged;

  // The row's first edge in `staged`, and its number of edges.
  __device__ int2 edges(const Block& block, int row) const {
    const int from = block.rowptr[row];
    return make_int2(from - begin, block.rowptr[row + 1] - from);
  }
};

// Sums a word of a row of many edges with one warp; the lanes split the edges.
__device__ __forceinline__ void sum_long_row(const StagePlan& plan, const GatheredRows& rows,
                                             const int2& edges, int word, float factor,
                                             const float* threshold, uint32_t* bits, int lane) {
  const int piece_words = plan.gathered_pieces * 4;
  const uint32_t* neighbour = rows.staged + edges.x * piece_words + word_place(word);
  int count = 0;  // of the lane's feature
#pragma unroll 1
  for (int begin = 0; begin < edges.y; begin += kLaneEdges * kWarp) {
    bspmm::CountPlanes<1, kLanePlanes> planes;
    planes.clear();
    bspmm::WordVector<1> x[kLaneEdges];
#pragma unroll
    for (int k = 0; k < kLaneEdges; ++k) {
      const int edge = begin + k * kWarp + lane;
      x[k].word[0] = edge < edges.y ? neighbour[edge * piece_words] : 0u;
    }
    planes.add<kLaneEdges>(x);
    const auto all = bspmm::fold_lanes<kWarp>(planes, 1, lane);
#pragma unroll
    for (int p = 0; p < kLanePlanes + 5; ++p)
      count += static_cast<int>(all.plane[p][0] >> lane & 1) << p;
  }
  const int feature = word * kWarp + lane;
  const float least = threshold != nullptr && feature < plan.stage.size ? threshold[feature] : 0.0f;
  const uint32_t result = __ballot_sync(kFullWarp, sum_bit(count, edges.y, factor, least));
  if (lane == 0) bits[word] = result;
}

// The signs of a word of a row from its counts, which all of its lanes hold; `least` [32] or null.
template <int kPlanes>
__device__ __forceinline__ uint32_t word_signs(const bspmm::CountPlanes<1, kPlanes>& planes,
                                               int degree, float factor, const float* least,
                                               int features, int slot) {
  if (__all_sync(kFullWarp, least == nullptr && isfinite(factor))) {
    const uint32_t flip = factor < 0 ? ~0u : 0u;
    const uint32_t bound = factor > 0   ? (static_cast<uint32_t>(degree) + 1) / 2
                           : factor < 0 ? static_cast<uint32_t>(degree) / 2 + 1
                                        : 0;
    return planes.at_least(0, bound) ^ flip;
  }
  constexpr int kOwn = kWarp / kRowLanes;
  uint32_t result = 0;
#pragma unroll
  for (int k = 0; k < kOwn; ++k) {
    const int feature = slot * kOwn + k;
    int count = 0;
#pragma unroll
    for (int p = 0; p < kPlanes; ++p)
      count += static_cast<int>(planes.plane[p][0] >> feature & 1) << p;
    const float threshold = least != nullptr && feature < features ? least[feature] : 0.0f;
    if (sum_bit(count, degree, factor, threshold)) result |= 1u << feature;
  }
#pragma unroll
  for (int distance = 1; distance < kRowLanes; distance *= 2)
    result |= __shfl_xor_sync(kFullWarp, result, distance);
  return result;
}

// Counts of a word, computed by the lanes of its row; `longest` is the most edges in the warp.
template <int kPlanes>
__device__ __forceinline__ auto count_word(const uint32_t* neighbour, int piece_words, int degree,
                                           int longest, int slot) {
  bspmm::CountPlanes<1, kPlanes> planes;
  planes.clear();
#pragma unroll 1
  for (int edge = slot; edge - slot < longest; edge += kFewEdges) {
    bspmm::WordVector<1> x[kBatchEdges];
#pragma unroll
    for (int k = 0; k < kBatchEdges; ++k)
      x[k].word[0] =
          edge + k * kRowLanes < degree ? neighbour[(edge + k * kRowLanes) * piece_words] : 0u;
    planes.template add<kBatchEdges>(x);
  }
  return bspmm::fold_lanes<kRowLanes>(planes, 1, slot);
}

// Signs of sums of bits; `threshold` [size], or null for 0. Eight lanes share a word of a row.
__device__ __forceinline__ void sum_bits(const StagePlan& plan, const Block& block,
                                         const GatheredRows& rows, const float* threshold,
                                         int most_degree, uint32_t* bits, int warp, int lane) {
  constexpr int kItems = kWarp / kRowLanes;
  const int words = plan.words, piece_words = plan.gathered_pieces * 4;
  const int count = (rows.last - rows.first) * words;
  const int slot = lane % kRowLanes;
#pragma unroll 1
  for (int base = warp * kItems; base < count; base += stage_warps() * kItems) {
    const int item = min(base + lane / kRowLanes, count - 1);
    const int in_rows = plan.by_words.quotient(item);
    const int row = rows.first + in_rows, word = item - in_rows * words;
    const int2 edges = rows.edges(block, row);
    const bool fits = edges.y <= kManyEdges;
    const int degree = fits ? edges.y : 0;
    const int longest = __reduce_max_sync(kFullWarp, degree);
    const uint32_t* neighbour = rows.staged + edges.x * piece_words + word_place(word);
    const float* least = threshold != nullptr ? threshold + word * kWarp : nullptr;
    const int features = plan.stage.size - word * kWarp;
    const float factor = block.row_factor[row];
    uint32_t result;
    if (longest <= kRowLanes) {
      bspmm::CountPlanes<1, 1> own;
      own.plane[0][0] = slot < degree ? neighbour[slot * piece_words] : 0u;
      result = word_signs(bspmm::fold_lanes<kRowLanes>(own, 1, slot), degree, factor, least,
                          features, slot);
    } else if (longest <= kFewEdges)
      result = word_signs(count_word<kFewPlanes>(neighbour, piece_words, degree, longest, slot),
                          degree, factor, least, features, slot);
    else
      result = word_signs(count_word<kManyPlanes>(neighbour, piece_words, degree, longest, slot),
                          degree, factor, least, features, slot);
    if (slot == 0 && fits) bits[row * plan.pitch + word] = result;
  }
  // Longer rows take whole warps.
  if (most_degree <= kManyEdges) return;
  for_long_rows(block, rows.first, rows.last, kManyEdges, words, warp, lane,
                [&](int row, int word) {
                  sum_long_row(plan, rows, rows.edges(block, row), word, block.row_factor[row],
                               threshold, bits + row * plan.pitch, lane);
                });
}

}  // namespace bitgnn::cuda::whole_model
