// Packing and product of few rows of float32 in one launch.
#include "bitgnn/cuda/ternary_fused.cuh"

namespace bitgnn::cuda {

cudaError_t linear_ternary_float(const TernaryLinearArgs& args, const Context& context) {
  return linear_ternary_fused<float>(args, context);
}

}  // namespace bitgnn::cuda
