// mma.sync binary convolution with a residual addend: sums and their bits.
#include "conv/cuda/mma_instances.cuh"

namespace bitgnn::cuda::conv {

cudaError_t conv_mma_sums(const ConvAddArgs& args, ConvTileKind kind, int vector, bool prefetches,
                          const Context& context) {
  return run_conv_tile<ConvResult::kSums>(args, kind, vector, ConvPool{}, prefetches, context);
}

}  // namespace bitgnn::cuda::conv
