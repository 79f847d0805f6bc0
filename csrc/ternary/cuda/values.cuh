// Epilogue of ternary products: scale, bias and a single rounding to the output type.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ternary/arguments.h"
#include "ternary/cuda/bits.cuh"

namespace bitgnn::cuda::ternary {

// Scale and bias of one output. The defaults leave a value unchanged: 1 * x = x and x + -0 = x.
struct TernaryTerms {
  float scale = 1.0f, bias = -0.0f;

  __device__ __forceinline__ float value(int32_t dot) const {
    return __fadd_rn(__fmul_rn(scale, __int2float_rn(dot)), bias);
  }
};

// The loaded terms of one output; nothing waits for the loads until terms() is called.
struct LoadedTerms {
  float x_scale = 1.0f, w_scale = 1.0f, bias = -0.0f;

  __device__ __forceinline__ void load(const TernaryBmmArgs& a, int64_t output) {
    if (a.x_scale != nullptr) x_scale = load_in_place(a.x_scale);
    if (a.w_scale != nullptr) w_scale = load_in_place(a.w_scale + output * a.w_scale_stride);
    if (a.bias != nullptr) bias = load_in_place(a.bias + output);
  }
  __device__ __forceinline__ TernaryTerms terms() const {
    return {__fmul_rn(x_scale, w_scale), bias};
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

// Calls f with a zero of the result type.
template <class F>
__device__ __forceinline__ void with_value(ValueType type, const F& f) {
  if (type == ValueType::kFloat32)
    f(float{});
  else if (type == ValueType::kFloat16)
    f(__half{});
  else if (type == ValueType::kBFloat16)
    f(__nv_bfloat16{});
  else
    f(int32_t{});
}

// Applies the epilogue to `dot` and stores the result as element `at` of the output.
__device__ __forceinline__ void store_value(const TernaryBmmArgs& a, int64_t at,
                                            const TernaryTerms& terms, int32_t dot) {
  with_value(a.type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, int32_t>)
      static_cast<T*>(a.out)[at] = dot;
    else
      static_cast<T*>(a.out)[at] = rounded<T>(terms.value(dot));
  });
}

}  // namespace bitgnn::cuda::ternary
