// Launches the strip convolution with channels split among warps: bits, pooled bits and sums.
#include "conv/cuda/strips/split.cuh"

namespace bitgnn::cuda::conv {

cudaError_t conv_split_strips_bits(const ConvArgs& args, const ConvPool& pool, bool prefetches,
                                   const Context& context) {
  ConvAddArgs all{};
  all.conv = args;
  return args.stride_height == 1
             ? launch_conv_split_strips<1, ConvResult::kBits>(all, pool, prefetches, context)
             : launch_conv_split_strips<2, ConvResult::kBits>(all, pool, prefetches, context);
}

cudaError_t conv_split_strips_sums(const ConvAddArgs& args, bool prefetches,
                                   const Context& context) {
  return args.conv.stride_height == 1
             ? launch_conv_split_strips<1, ConvResult::kSums>(args, {}, prefetches, context)
             : launch_conv_split_strips<2, ConvResult::kSums>(args, {}, prefetches, context);
}

}  // namespace bitgnn::cuda::conv
