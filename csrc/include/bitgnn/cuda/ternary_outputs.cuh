// Values of products of ternary rows: a scaled integer in the element type that was asked for.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "bitgnn/cuda/common.cuh"
#include "bitgnn/cuda/ternary_attention_launch.h"

namespace bitgnn::cuda {

template <class T>
__device__ __forceinline__ T ternary_value(float scale, int32_t dot) {
  return __fmul_rn(scale, static_cast<float>(dot));
}
template <>
__device__ __forceinline__ int32_t ternary_value<int32_t>(float, int32_t dot) {
  return dot;
}
template <>
__device__ __forceinline__ __half ternary_value<__half>(float scale, int32_t dot) {
  return __float2half_rn(__fmul_rn(scale, static_cast<float>(dot)));
}
template <>
__device__ __forceinline__ __nv_bfloat16 ternary_value<__nv_bfloat16>(float scale, int32_t dot) {
  return __float2bfloat16_rn(__fmul_rn(scale, static_cast<float>(dot)));
}

template <class T>
__device__ __forceinline__ uint32_t two_values(float scale, int32_t first, int32_t second) {
  const T pair[2] = {ternary_value<T>(scale, first), ternary_value<T>(scale, second)};
  uint32_t word;
  memcpy(&word, pair, sizeof(word));
  return word;
}

}  // namespace bitgnn::cuda
