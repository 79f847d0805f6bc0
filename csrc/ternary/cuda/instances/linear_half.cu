// Instantiates the one-launch packing and product of few rows for float16.
#include "ternary/cuda/linear/one_launch_tiles.cuh"

namespace bitgnn::cuda::ternary {

cudaError_t linear_ternary_half(const TernaryLinearArgs& args, const Context& context) {
  return linear_ternary_fused<__half>(args, context);
}

}  // namespace bitgnn::cuda::ternary
