// What ternary products make of their sums: scales, bias, and one rounding to the output's type.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "bitgnn/cuda/common.cuh"
#include "bitgnn/ternary_arguments.h"

namespace bitgnn::cuda {

// Scale and bias of one output; what is missing is left out, since 1 * x = x and x + -0 = x.
struct TernaryTerms {
  float scale = 1.0f, bias = -0.0f;

  __device__ __forceinline__ void load(const TernaryBmmArgs& a, int64_t output) {
    scale = a.x_scale != nullptr ? __ldg(a.x_scale) : 1.0f;
    if (a.w_scale != nullptr) {
      const float w_scale = __ldg(a.w_scale + output * a.w_scale_stride);
      scale = a.x_scale != nullptr ? __fmul_rn(scale, w_scale) : w_scale;
    }
    bias = a.bias != nullptr ? __ldg(a.bias + output) : -0.0f;
  }
  __device__ __forceinline__ float value(int32_t dot) const {
    return __fadd_rn(__fmul_rn(scale, __int2float_rn(dot)), bias);
  }
};

template <class T>
__device__ __forceinline__ T rounded(float value) {
  if constexpr (sizeof(T) == 4) {
    return value;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(value);
  } else {
    return __float2bfloat16_rn(value);
  }
}

// Stores the value of `dot` as element `at` of the output.
__device__ __forceinline__ void store_value(const TernaryBmmArgs& a, int64_t at,
                                            const TernaryTerms& terms, int32_t dot) {
  switch (a.type) {
    case ValueType::kFloat32:
      static_cast<float*>(a.out)[at] = terms.value(dot);
      break;
    case ValueType::kFloat16:
      static_cast<__half*>(a.out)[at] = rounded<__half>(terms.value(dot));
      break;
    case ValueType::kBFloat16:
      static_cast<__nv_bfloat16*>(a.out)[at] = rounded<__nv_bfloat16>(terms.value(dot));
      break;
    case ValueType::kInt32:
      static_cast<int32_t*>(a.out)[at] = dot;
      break;
  }
}

// The same for two neighbours at an even element of an aligned output.
__device__ __forceinline__ void store_values(const TernaryBmmArgs& a, int64_t at,
                                             const TernaryTerms (&terms)[2],
                                             const int32_t (&dot)[2]) {
  const float2 value = make_float2(terms[0].value(dot[0]), terms[1].value(dot[1]));
  switch (a.type) {
    case ValueType::kFloat32:
      *reinterpret_cast<float2*>(static_cast<float*>(a.out) + at) = value;
      break;
    case ValueType::kFloat16:
      *reinterpret_cast<__half2*>(static_cast<__half*>(a.out) + at) = __float22half2_rn(value);
      break;
    case ValueType::kBFloat16:
      *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(a.out) + at) =
          __float22bfloat162_rn(value);
      break;
    case ValueType::kInt32:
      *reinterpret_cast<int2*>(static_cast<int32_t*>(a.out) + at) = make_int2(dot[0], dot[1]);
      break;
  }
}

}  // namespace bitgnn::cuda
