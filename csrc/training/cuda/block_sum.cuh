// Sums over a block, and over the blocks' partial sums, in a fixed order.
#pragma once

#include "core/cuda/common.cuh"

namespace bitgnn::cuda::training {

constexpr int kQuantiseThreads = 256;
constexpr int kQuantiseMostBlocks = 1024;  // their sums are added up by one block

// The sum over the block, returned in thread 0; always in the same order.
__device__ __forceinline__ double block_sum(double value) {
  __shared__ double warps[kQuantiseThreads / kWarp];
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_down_sync(kFullWarp, value, step);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  double sum = 0.0;
  if (threadIdx.x == 0)
    for (const double warp : warps) sum += warp;
  return sum;
}

// The sum of the blocks' partial sums, returned in thread 0 and identical in every block.
__device__ __forceinline__ double sum_of_blocks(const double* partial, int blocks) {
  double sum = 0.0;
  for (int i = threadIdx.x; i < blocks; i += kQuantiseThreads) sum += partial[i];
  return block_sum(sum);
}

}  // namespace bitgnn::cuda::training
