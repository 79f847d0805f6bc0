// Device helpers that all CUDA kernels share: warp constants and the epilogue of aggregations.
#pragma once

#include "core/cuda/launch.h"

namespace bitgnn::cuda {

constexpr int kWarp = 32;
constexpr unsigned kFullWarp = 0xffffffffu;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// v = row_scale * sum + bias.
__device__ __forceinline__ float aggregate_value(const AggregateArgs& a, int64_t row,
                                                 int64_t feature, float sum) {
  const float v = a.row_scale != nullptr ? __fmul_rn(a.row_scale[row], sum) : sum;
  return a.bias != nullptr ? __fadd_rn(v, a.bias[feature]) : v;
}

__device__ __forceinline__ bool aggregate_bit(const AggregateArgs& a, int64_t feature, float v) {
  return v >= (a.threshold != nullptr ? a.threshold[feature] : 0.0f);
}

}  // namespace bitgnn::cuda
