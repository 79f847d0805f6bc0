// Launches the strip convolution with channels split among warps: bits, pooled bits and sums.
#include "conv/cuda/strips/split.cuh"

namespace bitgnn::cuda::conv {

cudaError_t conv_split_strips_bits(const ConvArgs& args, const ConvPool& pool, bool prefetches,
                                   const Context& context) {
  ConvAddArgs all{};
  all.conv = args;
  return with_split_shape(args, [&](auto parts, auto stride) {
    return launch_conv_split_strips<decltype(parts)::value, decltype(stride)::value,
                                    ConvResult::kBits>(all, pool, prefetches, context);
  });
}

cudaError_t conv_split_strips_sums(const ConvAddArgs& args, bool prefetches,
                                   const Context& context) {
  return with_split_shape(args.conv, [&](auto parts, auto stride) {
    return launch_conv_split_strips<decltype(parts)::value, decltype(stride)::value,
                                    ConvResult::kSums>(args, ConvPool{}, prefetches, context);
  });
}

}  // namespace bitgnn::cuda::conv
