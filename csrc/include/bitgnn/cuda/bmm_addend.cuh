// The second half of a product with an addend: v + addend as a value or as a bit, a warp a word.
#pragma once

#include "bitgnn/cuda/common.cuh"

namespace bitgnn::cuda {

constexpr int kAddendThreads = 256;

// `values` [rows, out_features] hold the product with scales and bias.
__global__ void __launch_bounds__(kAddendThreads)
    add_addend(const __grid_constant__ BmmArgs a, const float* values) {
  const int lane = threadIdx.x % kWarp;
  const int64_t words = words_for(a.out_features), total = a.rows * words;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * (kAddendThreads / kWarp);
  int64_t at = static_cast<int64_t>(blockIdx.x) * (kAddendThreads / kWarp) + threadIdx.x / kWarp;
  for (; at < total; at += stride) {
    const int64_t row = at / words;
    const int64_t column = (at - row * words) * kWarp + lane;
    const bool exists = column < a.out_features;
    const int64_t element = row * a.out_features + column;
    const float v = exists ? __fadd_rn(values[element], a.addend[element]) : 0.0f;
    if (a.out_float != nullptr) {
      if (exists) a.out_float[element] = v;
    } else {
      const unsigned word = __ballot_sync(kFullWarp, exists && bmm_bit(a, column, v));
      if (lane == 0) a.out_bits[at] = static_cast<int32_t>(word);
    }
  }
}

// `multiply` is the product without an addend, which writes floats.
template <class Multiply>
cudaError_t multiply_and_add(const BmmArgs& args, const Context& context,
                             const Multiply& multiply) {
  BmmArgs product = args;
  product.addend = nullptr;
  product.threshold = nullptr;
  product.flip = nullptr;
  product.out_bits = nullptr;
  if (product.out_float == nullptr)
    product.out_float = static_cast<float*>(context.workspace.take(
        static_cast<size_t>(args.rows) * static_cast<size_t>(args.out_features) * sizeof(float)));
  const cudaError_t status = multiply(product);
  if (status != cudaSuccess) return status;
  const int64_t warps = args.rows * words_for(args.out_features);
  const int64_t blocks = ceil_div(warps, kAddendThreads / kWarp);
  const int64_t most = static_cast<int64_t>(context.device.sm_count) * 16;
  add_addend<<<static_cast<unsigned>(blocks < most ? blocks : most), kAddendThreads, 0,
               context.stream>>>(args, product.out_float);
  return cudaGetLastError();
}

}  // namespace bitgnn::cuda
