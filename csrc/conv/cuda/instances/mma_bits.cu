// mma.sync binary convolution with bits as output.
#include "conv/cuda/mma_instances.cuh"

namespace bitgnn::cuda::conv {

cudaError_t conv_mma_bits(const ConvAddArgs& args, ConvTileKind kind, int vector,
                          const ConvPool& pool, bool prefetches, const Context& context) {
  return run_conv_tile<ConvResult::kBits>(args, kind, vector, pool, prefetches, context);
}

}  // namespace bitgnn::cuda::conv
