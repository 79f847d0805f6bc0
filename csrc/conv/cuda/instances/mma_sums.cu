// mma.sync binary convolution with a residual addend: sums and their bits.
#include "conv/cuda/mma_instances.cuh"

namespace bitgnn::cuda::conv {

template cudaError_t conv_mma<ConvResult::kSums>(const ConvAddArgs&, ConvTileKind, int,
                                                 const ConvPool&, bool, const Context&);

}  // namespace bitgnn::cuda::conv
