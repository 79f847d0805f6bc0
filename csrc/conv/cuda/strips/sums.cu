// Launches the strip convolution with a residual addend.
#include "conv/cuda/strips/sums.cuh"

namespace bitgnn::cuda::conv {

cudaError_t conv_strips_sums(const ConvAddArgs& args, bool prefetches, const Context& context) {
  return with_strip_shape(args.conv, [&](auto words, auto stride) {
    constexpr int kWords = decltype(words)::value;
    return launch_strips<kWords>(
        conv_strip_sums_kernel<kWords, strip_fragments(kWords), decltype(stride)::value,
                               strip_resident(kWords)>,
        args.conv, prefetches, context, args);
  });
}

}  // namespace bitgnn::cuda::conv
