// Batched products of packed ternary and boolean rows for any shape, alignment and strides:
// mma.sync with double-buffered shared memory, 64 x 64 results per block.
// For ternary rows of x, p1 & p2, ~n1 & p2, n1 & n2 and ~p1 & n2 count dot + counts_y; for boolean
// rows, a & p2 and a & ~n2 count dot + counts_x.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/mma_b1.cuh"
#include "ternary/cuda/outputs.cuh"
#include "ternary/cuda/values.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kTernaryTile = 64;
constexpr int kTernaryThreads = 128;
constexpr int kTernaryWords = 16;  // per row and plane in a buffer
constexpr int kTernaryPitch = tile_pitch(kTernaryWords);

struct TernaryTiles {
  alignas(16) uint32_t x[2][2][kTernaryTile * kTernaryPitch];  // [buffer][plane]
  alignas(16) uint32_t y[2][2][kTernaryTile * kTernaryPitch];
};

// Copies kTernaryWords words of each plane of 64 rows, starting at `word`; out of range is zero.
// `vector`: rows and planes are 16-byte aligned.
template <int kPlanes>
__device__ __forceinline__ void copy_ternary_rows(uint32_t (&to)[2][kTernaryTile * kTernaryPitch],
                                                  const int32_t* from, int64_t row_stride,
                                                  int words, int rows, int word, bool vector) {
  const auto thread = static_cast<int>(threadIdx.x);
  const auto copy = [&](int local, int plane, int unit, int each) {
    const bool exists = local < rows && word + unit < words;
    const int32_t* source = exists ? from + local * row_stride + plane * words + word + unit : from;
    uint32_t* target = to[plane] + local * kTernaryPitch + unit;
    if (each == 4)
      copy_async_16(target, source, exists ? 16 : 0);
    else
      copy_async_4(target, source, exists ? 4 : 0);
  };
  constexpr int kQuads = kTernaryWords / 4;
  if (vector) {
#pragma unroll
    for (int item = 0; item < kPlanes * kTernaryTile * kQuads; item += kTernaryThreads) {
      const int at = item + thread;
      copy(at / kQuads % kTernaryTile, at / (kQuads * kTernaryTile), at % kQuads * 4, 4);
    }
  } else {
#pragma unroll 4
    for (int item = 0; item < kPlanes * kTernaryTile * kTernaryWords; item += kTernaryThreads) {
      const int at = item + thread;
      copy(at / kTernaryWords % kTernaryTile, at / (kTernaryWords * kTernaryTile),
           at % kTernaryWords, 1);
    }
  }
}

template <bool kBoolean>
__device__ __forceinline__ void multiply_ternary_fragments(int32_t (&sum)[4],
                                                           const uint32_t (&p1)[4],
                                                           const uint32_t (&n1)[4],
                                                           const uint32_t (&p2)[2],
                                                           const uint32_t (&n2)[2]) {
  mma_and_popc(sum, p1, p2);
  if constexpr (kBoolean) {
    mma_and_popc(sum, p1, {~n2[0], ~n2[1]});
  } else {
    mma_and_popc(sum, n1, n2);
    mma_and_popc(sum, {~n1[0], ~n1[1], ~n1[2], ~n1[3]}, p2);
    mma_and_popc(sum, {~p1[0], ~p1[1], ~p1[2], ~p1[3]}, n2);
  }
}

template <bool kBoolean>
__global__ void __launch_bounds__(kTernaryThreads)
    ternary_matmul_kernel(const __grid_constant__ TernaryMatmulArgs a, bool vector_x,
                          bool vector_y) {
  __shared__ TernaryTiles tiles;
  __shared__ int32_t shared_counts[kTernaryTile];
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const auto words = static_cast<int>(words_for(a.size));
  const auto row_tiles = static_cast<unsigned>((a.rows + kTernaryTile - 1) / kTernaryTile);
  const auto column_tiles = static_cast<unsigned>((a.columns + kTernaryTile - 1) / kTernaryTile);
  const unsigned batch = blockIdx.x / (row_tiles * column_tiles);
  const unsigned tile = blockIdx.x % (row_tiles * column_tiles);
  const int64_t row = static_cast<int64_t>(tile / column_tiles) * kTernaryTile;
  const int64_t column = static_cast<int64_t>(tile % column_tiles) * kTernaryTile;
  const int64_t b0 = batch / static_cast<unsigned>(a.batches[1]);
  const int64_t b1 = batch % static_cast<unsigned>(a.batches[1]);
  const auto rows = static_cast<int>(min(int64_t{kTernaryTile}, a.rows - row));
  const auto columns = static_cast<int>(min(int64_t{kTernaryTile}, a.columns - column));
  const int32_t* x =
      a.x.words + b0 * a.x.batch_strides[0] + b1 * a.x.batch_strides[1] + row * a.x.row_stride;
  const int32_t* y =
      a.y.words + b0 * a.y.batch_strides[0] + b1 * a.y.batch_strides[1] + column * a.y.row_stride;
  wait_for_previous();

  const auto copy = [&](int word, int buffer) {
    copy_ternary_rows<kBoolean ? 1 : 2>(tiles.x[buffer], x, a.x.row_stride, words, rows, word,
                                        vector_x);
    copy_ternary_rows<2>(tiles.y[buffer], y, a.y.row_stride, words, columns, word, vector_y);
    commit_copies();
  };
  const int warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
  int32_t sum[2][4][4] = {};
  if (words > 0) copy(0, 0);
  const TernaryOperand& counted = kBoolean ? a.x : a.y;
  const int32_t* counts = counted.counts + b0 * counted.counts_batch_strides[0] +
                          b1 * counted.counts_batch_strides[1] +
                          (kBoolean ? row : column) * counted.counts_row_stride;
  for (int i = static_cast<int>(threadIdx.x); i < (kBoolean ? rows : columns); i += kTernaryThreads)
    shared_counts[i] = counts[i * counted.counts_row_stride];
  const float scale = product_scale(a.scale, a.y_scale);
  __syncthreads();
  for (int word = 0; word < words; word += kTernaryWords) {
    const int buffer = word / kTernaryWords % 2;
    if (word + kTernaryWords < words) {
      copy(word + kTernaryWords, buffer ^ 1);
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTernaryWords; k += kMmaWords) {
      if (word + k >= words) break;
      uint32_t p1[2][4], n1[2][4] = {};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = (warp_row + i * kMmaRows) * kTernaryPitch + k;
        load_row_fragment(p1[i], tiles.x[buffer][0] + at, kTernaryPitch, lane);
        if constexpr (!kBoolean)
          load_row_fragment(n1[i], tiles.x[buffer][1] + at, kTernaryPitch, lane);
      }
#pragma unroll
      for (int j = 0; j < 4; j += 2) {
        uint32_t p2[2][2], n2[2][2];
        const int at = (warp_column + j * kMmaColumns) * kTernaryPitch + k;
        load_column_fragments(p2[0], p2[1], tiles.y[buffer][0] + at, kTernaryPitch, lane);
        load_column_fragments(n2[0], n2[1], tiles.y[buffer][1] + at, kTernaryPitch, lane);
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            multiply_ternary_fragments<kBoolean>(sum[i][j + half], p1[i], n1[i], p2[half],
                                                 n2[half]);
      }
    }
    __syncthreads();
  }

  const int64_t first = (batch * a.rows + row) * a.columns + column;
  with_value(a.type, [&](auto zero) {
    using T = decltype(zero);
    T* out = static_cast<T*>(a.out) + first;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int r = warp_row + i * kMmaRows + fragment_group(lane) + e / 2 * 8;
          const int c = warp_column + j * kMmaColumns + 2 * fragment_quad(lane) + e % 2;
          if (r < rows && c < columns)
            out[r * a.columns + c] =
                ternary_value<T>(scale, sum[i][j][e] - shared_counts[kBoolean ? r : c]);
        }
  });
}

}  // namespace bitgnn::cuda::ternary
