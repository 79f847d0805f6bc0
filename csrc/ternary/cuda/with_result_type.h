// Dispatches kernels on the type of the results of ternary products.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "ternary/arguments.h"

namespace bitgnn::cuda::ternary {

// Calls f with a zero of the result type.
template <class F>
cudaError_t with_result_type(ValueType type, const F& f) {
  switch (type) {
    case ValueType::kFloat32:
      return f(float{});
    case ValueType::kFloat16:
      return f(__half{});
    case ValueType::kBFloat16:
      return f(__nv_bfloat16{});
    default:
      return f(int32_t{});
  }
}

}  // namespace bitgnn::cuda::ternary
