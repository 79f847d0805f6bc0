// Output values of products of ternary rows: scaled integers in the requested element type.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "core/cuda/common.cuh"
#include "ternary/cuda/bits.cuh"

namespace bitgnn::cuda::ternary {

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

// Bias that turns an integer sum below 2^22 into the bits of the float sum + 12582912: one addition
// then yields the float, where a conversion instruction would take four times as long.
constexpr int32_t kCountedFrom = 0x4b400000;

// Writes the values of two adjacent biased sums.
template <class T>
__device__ __forceinline__ void put_counted(T* to, float scale, int32_t first, int32_t second) {
  if constexpr (std::is_same_v<T, int32_t>) {
    to[0] = first - kCountedFrom;
    to[1] = second - kCountedFrom;
  } else {
    const float a = __fmul_rn(scale, __fadd_rn(__int_as_float(first), -12582912.0f));
    const float b = __fmul_rn(scale, __fadd_rn(__int_as_float(second), -12582912.0f));
    if constexpr (std::is_same_v<T, float>) {
      to[0] = a;
      to[1] = b;
    } else if constexpr (std::is_same_v<T, __half>) {
      const __half2 pair = __floats2half2_rn(a, b);
      memcpy(to, &pair, sizeof(pair));
    } else {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
      memcpy(to, &pair, sizeof(pair));
    }
  }
}

// Stores eight adjacent values, of which `count` exist, with streaming (evict-first) stores.
template <class T>
__device__ __forceinline__ void store_eight(T* to, const T (&values)[8], int count, bool vector) {
  if (vector) {
    constexpr int kVectors = sizeof(values) / sizeof(uint4);
    uint4 words[kVectors];
    memcpy(words, values, sizeof(values));
    if (count > 0) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) __stcs(reinterpret_cast<uint4*>(to) + i, words[i]);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (i < count) to[i] = values[i];
}

// Scale of a product's sums; a missing factor is 1.
__device__ __forceinline__ float product_scale(const float* x_scale, const float* y_scale) {
  const float x = x_scale != nullptr ? load_in_place(x_scale) : 1.0f;
  return y_scale != nullptr ? __fmul_rn(x, load_in_place(y_scale)) : x;
}

}  // namespace bitgnn::cuda::ternary
