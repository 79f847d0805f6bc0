// Binary convolution in strips of pixels, to bits and to pooled bits.
#include "bitgnn/cuda/conv_strips.cuh"

namespace bitgnn::cuda {

cudaError_t conv_strips_bits(const ConvArgs& args, const ConvPool& pool, bool prefetches,
                             const Context& context) {
  ConvAddArgs all{};
  all.conv = args;
  return with_strip_shape(args, [&](auto words, auto stride) {
    constexpr int kWords = decltype(words)::value, kStride = decltype(stride)::value;
    if constexpr (kStride == 1) {
      if (pool.pools)
        return launch_conv_strips<kWords, 1, ConvResult::kBits, true>(all, pool, prefetches,
                                                                      context);
    }
    if (pool.pools) return cudaErrorInvalidValue;
    return launch_conv_strips<kWords, kStride, ConvResult::kBits, false>(all, pool, prefetches,
                                                                         context);
  });
}

}  // namespace bitgnn::cuda
