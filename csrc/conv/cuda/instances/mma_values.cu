// mma.sync binary convolution with float or bare integer output.
#include "conv/cuda/mma_instances.cuh"

namespace bitgnn::cuda::conv {

cudaError_t conv_mma_values(const ConvAddArgs& args, ConvTileKind kind, int vector, bool prefetches,
                            const Context& context) {
  return run_conv_tile<ConvResult::kValues>(args, kind, vector, ConvPool{}, prefetches, context);
}

}  // namespace bitgnn::cuda::conv
