// Bit outputs of short packed rows: each warp keeps the weights of 32 outputs in registers, streams
// tiles of 16 rows past them, and compares the sums with row and column limits. Bound by
// instruction throughput.
#pragma once

#include <algorithm>

#include "bmm/arguments.h"
#include "bmm/cuda/floats/epilogue.cuh"
#include "bmm/cuda/stationary_weights.cuh"
#include "core/cuda/dependent_launch.cuh"

namespace bitgnn::cuda::bmm {

constexpr int kDirectThreads = 256;
constexpr int kDirectWarps = kDirectThreads / kWarp;
constexpr int kDirectBlocks = 3;  // per multiprocessor

// kVectors: rows are whole groups of kShortGroup words.
template <int kSteps, bool kVectors>
__global__ void __launch_bounds__(kDirectThreads, kDirectBlocks)
    bmm_compared_direct_kernel(const BmmArgs a, const StationaryPlan plan) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int quad = fragment_quad(lane);
  const int word = static_cast<int>(blockIdx.y) * kDirectWarps + warp % plan.word_warps;
  let_next_start();
  if (word >= plan.out_words) return;
  wait_for_previous();
  const int groups = kDirectWarps / plan.word_warps;
  const int stride = static_cast<int>(gridDim.x) * groups;
  int index = static_cast<int>(blockIdx.x) * groups + warp / plan.word_warps;
  if (index >= plan.tiles) return;
  const auto load = [&](ShortRow<kSteps>(&x)[2], int tile) {
    load_tile_rows<kSteps>(x, a, plan.words, kVectors, min(tile, plan.tiles - 1), lane);
  };
  ShortRow<kSteps> tiles[2][2];
  load(tiles[0], index);

  const int64_t first_column = static_cast<int64_t>(word) * kWordBits;
  StationaryWeights<kSteps> w;
  load_stationary_weights<kSteps>(w, a, plan.words, kVectors, first_column, lane);
  bool inverted = false;
  const auto own = static_cast<int>(first_column) + lane;
  const int32_t least = least_dot(a, column_terms(a, own, 0), inverted);
  ColumnPairs terms;
  set_column_terms<kSteps>(terms, w, least, lane);
  const WordFlips flips(a, first_column, inverted, lane);
  const TileTarget target(a, plan.out_words, word, lane);

  const auto step = [&](const ShortRow<kSteps>(&x)[2], ShortRow<kSteps>(&next)[2]) {
    load(next, index + stride);
    TileSums sum;
    int32_t row_terms[2];
    multiply_tile<kSteps>(sum, row_terms, x, w, a.size);
    uint32_t bits[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      bits[half] = 0;
      // dot >= least
      const float limit = __int2float_rn(-row_terms[half]) * kTermUnit;
#pragma unroll
      for (int j = 0; j < kWordFragments; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (column_part(sum[j][half * 2 + e], of_pair(terms[j], e)) >= limit)
            bits[half] |= 1u << (j * kMmaColumns + e);
        }
      }
    }
    share_tile_bits(bits, quad);
    target.store(index, flips.apply(quad == 0 ? bits[0] : bits[1]), true);
    index += stride;
    return index < plan.tiles;
  };
  while (step(tiles[0], tiles[1]) && step(tiles[1], tiles[0])) {
  }
}

template <int kSteps, bool kVectors>
cudaError_t launch_compared_direct(const BmmArgs& args, const Context& context) {
  const StationaryPlan plan = stationary_plan(args, kDirectWarps);
  const auto kernel = bmm_compared_direct_kernel<kSteps, kVectors>;
  int resident = 0;
  const cudaError_t status =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kDirectThreads, 0);
  if (status != cudaSuccess) return status;
  if (resident == 0) return cudaErrorInvalidConfiguration;
  const int64_t blocks = std::min(ceil_div(plan.tiles, kDirectWarps / plan.word_warps),
                                  static_cast<int64_t>(resident) * context.device.sm_count);
  const dim3 grid(grid_size(blocks), grid_size(ceil_div(plan.out_words, kDirectWarps)));
  return launch_dependent(kernel, grid, kDirectThreads, 0, context, args, plan);
}

}  // namespace bitgnn::cuda::bmm
