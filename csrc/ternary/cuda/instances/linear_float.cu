// Instantiates the one-launch packing and product of few rows for float32.
#include "ternary/cuda/linear/one_launch_tiles.cuh"

namespace bitgnn::cuda::ternary {

cudaError_t linear_ternary_float(const TernaryLinearArgs& args, const Context& context) {
  return linear_ternary_fused<float>(args, context);
}

}  // namespace bitgnn::cuda::ternary
