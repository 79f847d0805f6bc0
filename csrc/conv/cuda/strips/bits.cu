// Launches the strip convolution with bits or pooled bits as output.
#include "conv/cuda/strips/bits.cuh"

namespace bitgnn::cuda::conv {

cudaError_t conv_strips_bits(const ConvArgs& args, const ConvPool& pool, bool prefetches,
                             const Context& context) {
  return with_strip_shape(args, [&](auto words, auto stride) {
    constexpr int kWords = decltype(words)::value, kStride = decltype(stride)::value;
    if (!pool.pools)
      return launch_conv_strips<kWords, kStride, false>(args, pool, prefetches, context);
    if constexpr (kStride == 1)
      return launch_conv_strips<kWords, kStride, true>(args, pool, prefetches, context);
    return cudaErrorInvalidValue;
  });
}

}  // namespace bitgnn::cuda::conv
