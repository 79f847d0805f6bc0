// Sum and product of rows with very many neighbours, by whole blocks that search for such hubs.
#pragma once

#include "bmm/arguments.h"
#include "bspmm/cuda/values.cuh"
#include "pairs/cuda/joint/slab_counts.cuh"

namespace bitgnn::cuda::pairs {

// Computes a hub's bits with the whole block; the weights come from global memory.
template <class Lanes, class Short, class Source>
__device__ __forceinline__ void join_hub(const Source& source, const AggregateArgs& a,
                                         const BmmArgs& p, int64_t row, int64_t chunk) {
  constexpr int kFeatures = Lanes::kRowWords * static_cast<int>(kWordBits);
  __shared__ int counts[kFeatures];
  const bspmm::RowExtent extent = source.extent(row);
  bspmm::count_hub<Short::kBatch, Lanes::kWords, Lanes::kColumns, Short::kThreads>(
      source, a, extent, counts, chunk);
  const int64_t words = words_for(p.size);
  const int32_t* x = p.x + row * words;
  for (int o = static_cast<int>(threadIdx.x); o < kFeatures; o += Short::kThreads) {
    const int64_t output = chunk * kWordBits + o;
    bool bit = false;
    if (output < p.out_features) {
      int32_t differing = 0;
      for (int64_t word = 0; word < words; ++word)
        differing += __popc(x[word] ^ p.w[output * words + word]);
      const float scale = p.row_scale != nullptr ? p.row_scale[row] : 1.0f;
      const float column = p.out_scale != nullptr ? p.out_scale[output] : 1.0f;
      const float bias = p.bias != nullptr ? p.bias[output] : -0.0f;
      const float product =
          bmm::slab_value(scale, column, bias, static_cast<int32_t>(p.size) - 2 * differing);
      const float sum =
          bspmm::aggregate_value(a, row, output, __int2float_rn(2 * counts[o] - extent.degree));
      const float threshold = p.threshold != nullptr ? p.threshold[output] : 0.0f;
      bit = (__fadd_rn(product, sum) >= threshold) != (p.flip != nullptr && p.flip[output]);
    }
    const uint32_t bits = __ballot_sync(kFullWarp, bit);
    if (o % kWarp == 0 && output < p.out_features)
      p.out_bits[row * words_for(p.out_features) + output / kWarp] = static_cast<int32_t>(bits);
  }
  __syncthreads();
}

// Searches for hubs among every hub_blocks-th row.
template <class Shape, class Short, class Source>
__device__ __forceinline__ void join_hubs(const Source& source, const AggregateArgs& a,
                                          const BmmArgs& p, unsigned hub_blocks, int64_t chunk) {
  __shared__ int64_t found[Short::kThreads];
  __shared__ int count;
  const int64_t step = static_cast<int64_t>(hub_blocks) * Short::kThreads;
  for (int64_t base = blockIdx.x; base < a.rows; base += step) {
    const int64_t row = base + static_cast<int64_t>(threadIdx.x) * hub_blocks;
    const bool hub = row < a.rows && Shape::is_hub(source.extent(row));
    if (!__syncthreads_or(hub)) continue;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    if (hub) found[atomicAdd(&count, 1)] = row;
    __syncthreads();
    for (int i = 0; i < count; ++i)
      join_hub<typename Shape::Lanes, Short>(source, a, p, found[i], chunk);
    __syncthreads();
  }
}

}  // namespace bitgnn::cuda::pairs
