// Binary convolution and pooling on CUDA devices.
#pragma once

#include "conv/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::conv {

// See ConvArgs. `prepared` is int32 [out_channels, taps + 2]: the set bits of the weights at each
// tap, the least dot whose comparison holds (taps * channels / groups + 1: none), and whether the
// bit is turned round. Where it is given, it, the weights, threshold and flip must have been
// written before the kernel in front of this one in the stream began: they are read while that one
// runs.
cudaError_t convolve(const ConvArgs& args, const Context& context);

// Whether convolve_pooled() takes the convolution and the pooling of its bits.
bool pools_in_convolution(const ConvArgs& args, const BitPoolArgs& pool, const Context& context);

// Bits pooled over 2 x 2 pixels: args.out_bits is [images, out_height / 2, out_width / 2, words];
// flip as in BitPoolArgs, written as early as `prepared`.
cudaError_t convolve_pooled(const ConvArgs& args, const int32_t* flip, const Context& context);

// See ConvAddArgs; of `prepared` only the set bits count.
cudaError_t convolve_add(const ConvAddArgs& args, const Context& context);

// See BitPoolArgs.
cudaError_t pool_bits(const BitPoolArgs& args, const Context& context);

}  // namespace bitgnn::cuda::conv
