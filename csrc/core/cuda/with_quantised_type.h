// Dispatches kernels on the type and row alignment of floats that become bits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "core/common.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda {

// Calls f with a zero of the element type.
template <class F>
cudaError_t with_quantised_type(FloatType type, const F& f) {
  switch (type) {
    case FloatType::kFloat32:
      return f(float{});
    case FloatType::kFloat16:
      return f(__half{});
    case FloatType::kBFloat16:
      return f(__nv_bfloat16{});
    default:
      return cudaErrorInvalidValue;
  }
}

// True if every row starts at a 16-byte aligned address.
template <size_t N>
bool has_aligned_rows(const void* x, FloatType type, const int64_t (&strides)[N]) {
  return is_aligned(x) && std::all_of(strides, strides + N, [&](int64_t stride) {
           return stride * element_bytes(type) % 16 == 0;
         });
}

}  // namespace bitgnn::cuda
