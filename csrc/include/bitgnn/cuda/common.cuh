// Device helpers that all CUDA kernels share: warp constants and the two epilogues.
#pragma once

#include "bitgnn/cuda/launch.h"

namespace bitgnn::cuda {

constexpr int kWarp = 32;
constexpr unsigned kFullWarp = 0xffffffffu;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// v = (row_scale * out_scale) * dot + bias, each step rounded to float32 as in the reference.
__device__ __forceinline__ float bmm_value(const BmmArgs& a, const float* row_scale, int64_t out,
                                           int32_t dot) {
  float v = __int2float_rn(dot);
  if (row_scale != nullptr && a.out_scale != nullptr) {
    v = __fmul_rn(__fmul_rn(*row_scale, a.out_scale[out]), v);
  } else if (row_scale != nullptr) {
    v = __fmul_rn(*row_scale, v);
  } else if (a.out_scale != nullptr) {
    v = __fmul_rn(a.out_scale[out], v);
  }
  return a.bias != nullptr ? __fadd_rn(v, a.bias[out]) : v;
}

__device__ __forceinline__ bool bmm_bit(const BmmArgs& a, int64_t out, float v) {
  const bool bit = v >= (a.threshold != nullptr ? a.threshold[out] : 0.0f);
  return a.flip != nullptr ? bit != a.flip[out] : bit;
}

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
