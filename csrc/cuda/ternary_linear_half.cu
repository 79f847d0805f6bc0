// Packing and product of few rows of float16 in one launch.
#include "bitgnn/cuda/ternary_fused.cuh"

namespace bitgnn::cuda {

cudaError_t linear_ternary_half(const TernaryLinearArgs& args, const Context& context) {
  return linear_ternary_fused<__half>(args, context);
}

}  // namespace bitgnn::cuda
