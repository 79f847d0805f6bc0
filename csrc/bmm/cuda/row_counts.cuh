// Popcounts of packed rows, the correction terms of products in AND form.
#pragma once

#include "core/cuda/common.cuh"
#include "core/cuda/dependent_launch.cuh"

namespace bitgnn::cuda::bmm {

constexpr int kCountLanes = 8;  // lanes per row
constexpr int kCountThreads = 256;
constexpr int kCountRows = kCountThreads / kCountLanes;

// Sums over a row's lanes.
__device__ __forceinline__ int32_t sum_count_lanes(int32_t count) {
#pragma unroll
  for (int step = 1; step < kCountLanes; step *= 2)
    count += __shfl_xor_sync(kFullWarp, count, step);
  return count;
}

// Counts the set bits of the rows of x, then of w. Rows are a multiple of four words and 16-byte
// aligned.
static __global__ void __launch_bounds__(kCountThreads)
    bmm_counts_kernel(const int32_t* x, int64_t rows, const int32_t* w, int64_t columns, int words,
                      int32_t* counts) {
  let_next_start();
  wait_for_previous();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kCountRows + threadIdx.x / kCountLanes;
  const int lane = threadIdx.x % kCountLanes;
  int32_t count = 0;
  if (row < rows + columns) {
    const int32_t* from = row < rows ? x + row * words : w + (row - rows) * words;
#pragma unroll 4
    for (int i = lane * 4; i < words; i += kCountLanes * 4) {
      const int4 v = *reinterpret_cast<const int4*>(from + i);
      count += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
    }
  }
  count = sum_count_lanes(count);
  if (lane == 0 && row < rows + columns) counts[row] = count;
}

// The same for rows of any length and alignment, which are also copied to `padded`: all of x, then
// all of w, `pitch` words per row, zero-padded.
static __global__ void __launch_bounds__(kCountThreads)
    bmm_pad_kernel(const int32_t* x, int64_t rows, const int32_t* w, int64_t columns, int words,
                   int pitch, int32_t* padded, int32_t* counts) {
  let_next_start();
  wait_for_previous();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kCountRows + threadIdx.x / kCountLanes;
  const int lane = threadIdx.x % kCountLanes;
  int32_t count = 0;
  if (row < rows + columns) {
    const int32_t* from = row < rows ? x + row * words : w + (row - rows) * words;
#pragma unroll 8
    for (int i = lane; i < pitch; i += kCountLanes) {
      const int32_t v = i < words ? from[i] : 0;
      padded[row * pitch + i] = v;
      count += __popc(v);
    }
  }
  count = sum_count_lanes(count);
  if (lane == 0 && row < rows + columns) counts[row] = count;
}

}  // namespace bitgnn::cuda::bmm
