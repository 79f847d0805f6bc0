// Fully connected first layers of up to 16 rows: the warps of a block split the features of 16
// outputs, rows and weights go straight from global memory to the tensor cores, and sums are
// reduced in shared memory. Bound by latency.
#pragma once

#include <algorithm>

#include "first_layers/arguments.h"
#include "first_layers/cuda/linear.cuh"

namespace bitgnn::cuda::first_layers {

constexpr int kFewLinearMostWarps = 16;
constexpr int kFewLinearOutputs = 16;
constexpr int kFewLinearSteps = 4;  // of 32 features, in flight per warp

// sum += weights * bytes of rows for 16 outputs and 8 rows over 32 features; weights are signed.
template <bool kSigned>
__device__ __forceinline__ void mma_weights(int32_t (&sum)[4], const uint32_t (&w)[4],
                                            const uint32_t (&x)[2]) {
  if constexpr (kSigned) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};\n"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x[0]), "r"(x[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};\n"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x[0]), "r"(x[1]));
  }
}

// Steps of 32 features are split among the warps; kRowTiles tiles of eight rows, whole aligned
// groups of four features.
template <class T, int kRowTiles>
__global__ void __launch_bounds__(kFewLinearMostWarps* kWarp)
    fixed_linear_few_kernel(const FixedConvArgs a, const float inverse_step, const int warp_steps) {
  constexpr int kRows = kRowTiles * 8;
  constexpr int kPitch = kFewLinearOutputs + 4;  // free of bank conflicts
  __shared__ int32_t sums[kFewLinearMostWarps][kRows][kPitch];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, quad = lane % 4, group = lane / 4;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int threads = static_cast<int>(blockDim.x);
  const auto size = static_cast<int>(a.conv.channels);
  const auto words = static_cast<int>(pack::word_count(size));
  const int64_t first_output = static_cast<int64_t>(blockIdx.x) * kFewLinearOutputs;
  let_next_start();
  // `prepared` and the weights were written before the previous kernel, so they may be read before
  // the wait.
  if (a.conv.prepared == nullptr) wait_for_previous();
  const int own_output = static_cast<int>(threadIdx.x) % kFewLinearOutputs;
  const FixedOutput output(a, first_output + own_output);
  const int32_t* w[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t from = first_output + half * 8 + group;
    w[half] = from < a.conv.out_channels ? a.conv.w + from * words : nullptr;
  }
  int32_t low_sum[kRowTiles][4] = {}, high_sum[kRowTiles][4] = {};
  const int begin = warp * warp_steps, end = min(begin + warp_steps, words);
  bool waited = a.conv.prepared == nullptr;
#pragma unroll 1
  for (int first = begin; first < end; first += kFewLinearSteps) {
    uint32_t bits[kFewLinearSteps][2];
#pragma unroll
    for (int s = 0; s < kFewLinearSteps; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        bits[s][half] = w[half] != nullptr && first + s < end
                            ? static_cast<uint32_t>(__ldg(w[half] + first + s))
                            : 0u;
    }
    if (!waited) wait_for_previous();
    waited = true;
    FixedVector<T, 4> values[kFewLinearSteps][kRowTiles][2];
#pragma unroll
    for (int s = 0; s < kFewLinearSteps; ++s) {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        const int64_t row = i * 8 + group;
        const T* from = row < a.conv.images && first + s < end
                            ? static_cast<const T*>(a.x) + row * a.image_stride
                            : nullptr;
#pragma unroll
        for (int k = 0; k < 2; ++k)
          values[s][i][k] = load_features<T, true>(from, (first + s) * 32 + quad * 8 + k * 4, size);
      }
    }
#pragma unroll
    for (int s = 0; s < kFewLinearSteps; ++s) {
      const uint32_t low_bits = bits[s][0] >> (quad * 8), high_bits = bits[s][1] >> (quad * 8);
      const uint32_t weights[4] = {weight_bytes(low_bits), weight_bytes(high_bits),
                                   weight_bytes(low_bits >> 4), weight_bytes(high_bits >> 4)};
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        uint32_t low[2], high[2];
#pragma unroll
        for (int k = 0; k < 2; ++k) split_features(values[s][i][k], inverse_step, low[k], high[k]);
        mma_weights<false>(low_sum[i], weights, low);
        mma_weights<true>(high_sum[i], weights, high);
      }
    }
  }
  if (!waited) wait_for_previous();
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      sums[warp][i * 8 + quad * 2 + k % 2][k / 2 * 8 + group] =
          low_sum[i][k] + high_sum[i][k] * 256;
  }
  __syncthreads();
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < kRows * kFewLinearOutputs;
       item += threads) {
    const int row = item / kFewLinearOutputs;
    int32_t dot = 0;
    for (int k = 0; k < threads / kWarp; ++k) dot += sums[k][row][own_output];
    if (a.conv.out_bits == nullptr) {
      if (row < a.conv.images) output.store(a, row, dot);
      continue;
    }
    const uint32_t bits = __ballot_sync(kFullWarp, output.bit(a, dot));
    if (row < a.conv.images && own_output == 0)
      reinterpret_cast<uint16_t*>(
          a.conv.out_bits)[row * pack::word_count(a.conv.out_channels) * 2 + blockIdx.x] =
          static_cast<uint16_t>(bits >> lane);
  }
}

template <class T, int kRowTiles>
cudaError_t launch_fixed_linear_few(const FixedConvArgs& a, const Context& context) {
  const int64_t steps = words_for(a.conv.channels);
  const int64_t warp_steps = ceil_div(steps, kFewLinearMostWarps);
  const int64_t warps = std::max<int64_t>(4, ceil_div(steps, warp_steps));
  // Bits are written as half words, so blocks cover all of them.
  const int64_t blocks = a.conv.out_bits != nullptr
                             ? 2 * words_for(a.conv.out_channels)
                             : ceil_div(a.conv.out_channels, kFewLinearOutputs);
  return launch_dependent(fixed_linear_few_kernel<T, kRowTiles>, dim3(grid_size(blocks)),
                          static_cast<int>(warps) * kWarp, 0, context, a, 1.0f / a.step,
                          static_cast<int>(warp_steps));
}

}  // namespace bitgnn::cuda::first_layers
