// Packs contiguous rows of fewer than 32 floats into one word each: 32 rows per warp, read as one
// run.
#pragma once

#include "pack/arguments.h"
#include "pack/cuda/rows.cuh"

namespace bitgnn::cuda::pack {

constexpr int kNarrowThreads = 256;
constexpr int kNarrowLoads = 8;  // in flight per thread

// 32 rows of `cols` floats are `cols` votes of 32 adjacent elements; lane r cuts its row out of
// them.
template <class T>
__global__ void __launch_bounds__(kNarrowThreads)
    pack_narrow_kernel(const T* x, const float* threshold, int cols, int64_t rows, int32_t* words) {
  using Value = typename DenseRows<T>::Value;
  const int lane = threadIdx.x % kWarp;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * (kNarrowThreads / kWarp) +
                       static_cast<int>(threadIdx.x) / kWarp;
  const int64_t first_row = warp * kWarp;
  if (first_row >= rows) return;
  const int count = static_cast<int>(min(rows - first_row, static_cast<int64_t>(kWarp))) * cols;
  const T* run = x + first_row * cols;
  uint32_t own = 0;  // vote number `lane`
  for (int first = 0; first < cols; first += kNarrowLoads) {
    Value value[kNarrowLoads];
#pragma unroll
    for (int j = 0; j < kNarrowLoads; ++j) {
      const int element = (first + j) * kWarp + lane;
      value[j] = element < count ? to_value(__ldg(run + element)) : Value(0);
    }
#pragma unroll
    for (int j = 0; j < kNarrowLoads; ++j) {
      float limit = 0.0f;
      if (threshold != nullptr) limit = __ldg(threshold + ((first + j) * kWarp + lane) % cols);
      const uint32_t vote = __ballot_sync(kFullWarp, value[j] >= static_cast<Value>(limit));
      if (lane == first + j) own = vote;
    }
  }
  const int bit = lane * cols;
  const uint32_t low = __shfl_sync(kFullWarp, own, bit / kWarp);
  const uint32_t high = __shfl_sync(kFullWarp, own, min(bit / kWarp + 1, kWarp - 1));
  const uint32_t word = __funnelshift_r(low, high, bit % kWarp) & ((1u << cols) - 1u);
  if (first_row + lane < rows) words[first_row + lane] = static_cast<int32_t>(word);
}

// Requires args.cols from 1 to 31, contiguous rows and no scale.
template <class T>
cudaError_t launch_pack_narrow(const PackArgs& args, int64_t rows, const Context& context) {
  if (rows == 0) return cudaSuccess;
  const int64_t blocks = ceil_div(rows, kNarrowThreads);
  pack_narrow_kernel<<<static_cast<unsigned>(blocks), kNarrowThreads, 0, context.stream>>>(
      static_cast<const T*>(args.x), args.threshold, static_cast<int>(args.cols), rows, args.words);
  return cudaGetLastError();
}

}  // namespace bitgnn::cuda::pack
