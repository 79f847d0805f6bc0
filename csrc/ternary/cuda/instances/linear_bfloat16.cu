// Instantiates the one-launch packing and product of few rows for bfloat16.
#include "ternary/cuda/linear/one_launch_tiles.cuh"

namespace bitgnn::cuda::ternary {

cudaError_t linear_ternary_bfloat16(const TernaryLinearArgs& args, const Context& context) {
  return linear_ternary_fused<__nv_bfloat16>(args, context);
}

}  // namespace bitgnn::cuda::ternary
