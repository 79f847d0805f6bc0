// Dispatches kernels on the type of the results of ternary products.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "ternary/arguments.h"

namespace bitgnn::cuda::ternary {

// Calls f with a zero of the result type, which is no integer.
template <class F>
cudaError_t with_float_result(ValueType type, const F& f) {
  if (type == ValueType::kFloat32) return f(float{});
  return type == ValueType::kFloat16 ? f(__half{}) : f(__nv_bfloat16{});
}

// Calls f with a zero of the result type.
template <class F>
cudaError_t with_result_type(ValueType type, const F& f) {
  return type == ValueType::kInt32 ? f(int32_t{}) : with_float_result(type, f);
}

}  // namespace bitgnn::cuda::ternary
