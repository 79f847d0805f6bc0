// Launches the strip convolution with bits or pooled bits as output.
#include "conv/cuda/strips/bits.cuh"

namespace bitgnn::cuda::conv {

cudaError_t conv_strips_bits(const ConvArgs& args, const ConvPool& pool, bool prefetches,
                             const Context& context) {
  return with_strip_shape(args, [&](auto words, auto stride) {
    constexpr int kWords = decltype(words)::value, kStride = decltype(stride)::value;
    constexpr int kFragments = strip_fragments(kWords), kBlocks = strip_resident(kWords);
    auto kernel = conv_strips_kernel<kWords, kFragments, kStride, false, kBlocks>;
    if constexpr (kStride == 1) {
      if (pool.pools) kernel = conv_strips_kernel<kWords, kFragments, kStride, true, kBlocks>;
    }
    return launch_strips<kWords>(kernel, args, prefetches, context, args, pool);
  });
}

}  // namespace bitgnn::cuda::conv
