// Launches the strip convolution with a residual addend.
#include "conv/cuda/strips/sums.cuh"

namespace bitgnn::cuda::conv {

cudaError_t conv_strips_sums(const ConvAddArgs& args, bool prefetches, const Context& context) {
  return with_strip_shape(args.conv, [&](auto words, auto stride) {
    return launch_conv_strip_sums<decltype(words)::value, decltype(stride)::value>(args, prefetches,
                                                                                   context);
  });
}

}  // namespace bitgnn::cuda::conv
