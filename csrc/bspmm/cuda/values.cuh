// Turns sums of neighbours into the results of an aggregation.
#pragma once

#include "bspmm/arguments.h"
#include "core/cuda/common.cuh"

namespace bitgnn::cuda::bspmm {

// v = row_scale * sum + bias.
__device__ __forceinline__ float aggregate_value(const AggregateArgs& a, int64_t row,
                                                 int64_t feature, float sum) {
  const float v = a.row_scale != nullptr ? __fmul_rn(a.row_scale[row], sum) : sum;
  return a.bias != nullptr ? __fadd_rn(v, a.bias[feature]) : v;
}

__device__ __forceinline__ bool aggregate_bit(const AggregateArgs& a, int64_t feature, float v) {
  return v >= (a.threshold != nullptr ? a.threshold[feature] : 0.0f);
}

}  // namespace bitgnn::cuda::bspmm
