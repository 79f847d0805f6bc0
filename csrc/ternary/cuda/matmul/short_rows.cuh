// Products of ternary rows of few words, such as those of attention heads. Operands go straight
// from global memory into mma.sync fragments; one 256-bit mma covers the four products of a pair of
// words; columns are dealt to fragments so that a lane's results are contiguous in memory.
// Bound by storing the results (2048 x 2048 in 16 bits: 8 MB).
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/mma_b1.cuh"
#include "ternary/arguments.h"
#include "ternary/cuda/outputs.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kShortColumns = 64;  // per warp
constexpr int kShortTiles = kShortColumns / kMmaColumns;
constexpr int kShortWarps = 4;  // side by side

struct ShortPlan {
  int row_blocks;
  int column_blocks;
  int steps;           // of 16 rows per warp
  bool vector_counts;  // four counts can be read at once
  bool vector_out;     // eight results can be stored at once
};

// Column of the warp that fragment tile `tile` holds as its column `column`. A lane's results in
// four tiles are then eight adjacent columns.
__device__ __forceinline__ int dealt_column(int tile, int column) {
  return 32 * (tile / 4) + 8 * (column / 2) + 2 * (tile % 4) + column % 2;
}

// Words `word` and `word` + 1 of a plane, or 0 past its end. kVector: both exist, 8-byte aligned.
template <bool kVector>
__device__ __forceinline__ uint2 load_pair(const int32_t* plane, int word, int words) {
  if constexpr (kVector) return load_in_place(reinterpret_cast<const uint2*>(plane + word));
  const auto at = [&](int i) {
    return i < words ? static_cast<uint32_t>(load_in_place(plane + i)) : 0u;
  };
  return make_uint2(at(word), at(word + 1));
}

// kPairs: pairs of words in a plane of a row; whole pairs with kVector. For each pair, lane q of a
// quad holds 0: p1, 1: n1, 2: ~n1, 3: ~p1 of its rows and 0: p2, 1: n2, 2: p2, 3: n2 of its
// columns. Sums start from minus the columns' counts. Rows and columns past the end repeat the
// last one.
template <class T, int kPairs, bool kVector>
__global__ void __launch_bounds__(kShortWarps* kWarp)
    ternary_short_kernel(const __grid_constant__ TernaryMatmulArgs a,
                         const __grid_constant__ ShortPlan plan) {
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int group = fragment_group(lane), quad = fragment_quad(lane);
  const auto blocks = static_cast<unsigned>(plan.row_blocks) * plan.column_blocks;
  const unsigned batch = blockIdx.x / blocks, inside = blockIdx.x - batch * blocks;
  const unsigned row_block = inside / plan.column_blocks;
  const unsigned column_block = inside - row_block * plan.column_blocks;
  const unsigned b0 = batch / static_cast<unsigned>(a.batches[1]);
  const unsigned b1 = batch - b0 * static_cast<unsigned>(a.batches[1]);
  const int64_t column = (static_cast<int64_t>(column_block) * kShortWarps + warp) * kShortColumns;
  const int64_t row = static_cast<int64_t>(row_block) * plan.steps * kMmaRows;
  const auto words = static_cast<int>(words_for(a.size));
  const auto columns = static_cast<int>(min(int64_t{kShortColumns}, a.columns - column));
  const auto rows = static_cast<int>(min(int64_t{plan.steps} * kMmaRows, a.rows - row));
  if (columns <= 0) return;
  const int32_t* x = a.x.words + b0 * a.x.batch_strides[0] + b1 * a.x.batch_strides[1] +
                     row * a.x.row_stride + (quad % 3 == 0 ? 0 : words);
  const int32_t* y = a.y.words + b0 * a.y.batch_strides[0] + b1 * a.y.batch_strides[1] +
                     column * a.y.row_stride + quad % 2 * words;
  const int32_t* counts = a.y.counts + b0 * a.y.counts_batch_strides[0] +
                          b1 * a.y.counts_batch_strides[1] + column * a.y.counts_row_stride;
  T* out = static_cast<T*>(a.out) + (batch * a.rows + row + group) * a.columns + column + 8 * quad;
  const auto x_stride = static_cast<int>(a.x.row_stride);
  const auto y_stride = static_cast<int>(a.y.row_stride);
  const auto counts_stride = static_cast<int>(a.y.counts_row_stride);
  const auto load_rows = [&](uint2(&to)[kPairs][2], int first) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t* plane = x + min(first + group + 8 * half, rows - 1) * x_stride;
#pragma unroll
      for (int t = 0; t < kPairs; ++t) to[t][half] = load_pair<kVector>(plane, 2 * t, words);
    }
  };
  wait_for_previous();

  uint2 now[kPairs][2], next[kPairs][2];
  load_rows(now, 0);
  uint32_t fragments[kShortTiles][kPairs][2];
#pragma unroll
  for (int j = 0; j < kShortTiles; ++j) {
    const int32_t* plane = y + min(dealt_column(j, group), columns - 1) * y_stride;
#pragma unroll
    for (int t = 0; t < kPairs; ++t) {
      const uint2 pair = load_pair<kVector>(plane, 2 * t, words);
      fragments[j][t][0] = pair.x;
      fragments[j][t][1] = pair.y;
    }
  }
  int32_t start[kShortTiles][2];
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int first = 32 * side + 8 * quad;
    if (plan.vector_counts && columns == kShortColumns) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 four = load_in_place(reinterpret_cast<const uint4*>(counts + first) + i);
        const uint32_t each[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int k = 0; k < 4; ++k)
          start[4 * side + 2 * i + k / 2][k % 2] = static_cast<int32_t>(each[k]);
      }
    } else {
#pragma unroll
      for (int k = 0; k < 8; ++k)
        start[4 * side + k / 2][k % 2] =
            load_in_place(counts + min(first + k, columns - 1) * counts_stride);
    }
  }
  const float scale = product_scale(a.scale, a.y_scale);
  const uint32_t flip = quad >= 2 ? ~0u : 0u;
#pragma unroll
  for (int j = 0; j < kShortTiles; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) start[j][e] = kCountedFrom - start[j][e];

#pragma unroll 1
  for (int first = 0; first < rows; first += kMmaRows) {
    if (first + kMmaRows < rows) load_rows(next, first + kMmaRows);
    T values[2][2][8];  // [half of the rows][half of the columns]
#pragma unroll
    for (int j = 0; j < kShortTiles; ++j) {
      int32_t sum[4] = {start[j][0], start[j][1], start[j][0], start[j][1]};
#pragma unroll
      for (int t = 0; t < kPairs; ++t)
        mma_and_popc(
            sum, {now[t][0].x ^ flip, now[t][1].x ^ flip, now[t][0].y ^ flip, now[t][1].y ^ flip},
            fragments[j][t]);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        put_counted(&values[half][j / 4][2 * (j % 4)], scale, sum[2 * half], sum[2 * half + 1]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (first + group + 8 * half < rows) {
        T* to = out + 8 * half * a.columns;
#pragma unroll
        for (int side = 0; side < 2; ++side)
          store_eight(to + 32 * side, values[half][side], columns - 32 * side - 8 * quad,
                      plan.vector_out);
      }
    }
    out += kMmaRows * a.columns;
#pragma unroll
    for (int t = 0; t < kPairs; ++t)
#pragma unroll
      for (int half = 0; half < 2; ++half) now[t][half] = next[t][half];
  }
}

}  // namespace bitgnn::cuda::ternary
