// Binary convolution and pooling on CUDA devices.
#pragma once

#include "conv/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::conv {

// 2 x 2 max pooling with stride 2: OR of the bits, inverted by flip before and after.
// ConvArgs::out_bits then holds [images, out_height / 2, out_width / 2, words].
struct ConvPool {
  bool pools;
  const int32_t* flip;  // [words_for(out_channels)] or null
};

// See ConvArgs. `prepared` is int32 [out_channels, taps + 2]: the popcount of the weights at each
// tap, the smallest dot that satisfies the comparison (taps * channels / groups + 1: none does),
// and whether the bit is inverted. If it is given, `prepared`, weights, threshold and flip must
// have been written before the previous kernel in the stream started, because they are read while
// that kernel runs.
cudaError_t convolve(const ConvArgs& args, const Context& context);

// Whether convolve_pooled() supports this convolution and the pooling of its bits.
bool suits_pooled_convolution(const ConvArgs& args, const BitPoolArgs& pool,
                              const Context& context);

// Bits pooled over 2 x 2 pixels: args.out_bits is [images, out_height / 2, out_width / 2, words];
// flip is as in BitPoolArgs and must be written as early as `prepared`.
cudaError_t convolve_pooled(const ConvArgs& args, const int32_t* flip, const Context& context);

// See ConvAddArgs; only the popcounts of `prepared` are used.
cudaError_t convolve_add(const ConvAddArgs& args, const Context& context);

// See BitPoolArgs.
cudaError_t pool_bits(const BitPoolArgs& args, const Context& context);

}  // namespace bitgnn::cuda::conv
