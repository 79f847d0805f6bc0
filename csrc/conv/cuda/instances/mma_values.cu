// mma.sync binary convolution with float or bare integer output.
#include "conv/cuda/mma_instances.cuh"

namespace bitgnn::cuda::conv {

template cudaError_t conv_mma<ConvResult::kValues>(const ConvAddArgs&, ConvTileKind, int,
                                                   const ConvPool&, bool, const Context&);

}  // namespace bitgnn::cuda::conv
