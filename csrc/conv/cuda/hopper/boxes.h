// Hopper's binary convolution on boxes of pixels: bits and residual sums for typical network
// layers.
#pragma once

#include "conv/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::conv {

// Whether conv_box() takes the problem and is worthwhile for it: sm_90, one group of 128 or a
// multiple of 256 channels, a multiple of 128 outputs, kernels of up to 3 x 3, strides of 1 and 2,
// no dilation, output bits or (`adds`) 16-bit addends and sums, enough pixels for the device.
bool conv_box_fits(const ConvAddArgs& args, bool adds, const Context& context);

// args.conv.prepared must be given: the tap popcounts are always used, the limits only for the bits
// of plain convolutions. `prefetches`: weights and `prepared` were written before the previous
// kernel.
cudaError_t conv_box(const ConvAddArgs& args, bool adds, bool prefetches, const Context& context);

}  // namespace bitgnn::cuda::conv
