// Counts the set bits of weight rows, in extra blocks of the kernels that prepare rows.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "ternary/cuda/pack/rows.cuh"

namespace bitgnn::cuda::ternary {

// Counts the set bits of one weight row with one warp.
__device__ __forceinline__ void count_weights(const int32_t* w, int64_t output, int words,
                                              int32_t* weight_counts) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto* row = reinterpret_cast<const uint4*>(w + output * words);
  int count = 0;
#pragma unroll 4
  for (int i = lane; i < words / 4; i += kWarp) {
    const uint4 v = load_in_place(row + i);
    count += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
  }
  count = __reduce_add_sync(kFullWarp, count);
  if (lane == 0) weight_counts[output] = count;
}

// Weights whose bits are counted by the blocks after the row_blocks that prepare rows.
struct CountedWeights {
  const int32_t* w;
  int64_t outputs;
  int words;
  int32_t* counts;
  int row_blocks;

  __device__ __forceinline__ void count() const {
    const int64_t output =
        (static_cast<int64_t>(blockIdx.x) - row_blocks) * kTernaryPackWarps + threadIdx.x / kWarp;
    let_next_start();
    wait_for_previous();
    if (output < outputs) count_weights(w, output, words, counts);
  }
};

}  // namespace bitgnn::cuda::ternary
