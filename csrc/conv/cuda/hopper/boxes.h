// Hopper's binary convolution on boxes of pixels: bits and residual sums of layers as networks have
// them.
#pragma once

#include "conv/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::conv {

// Whether conv_box() takes the problem and is made for it: sm_90, one group of 128 or a multiple of
// 256 channels, a multiple of 128 outputs, kernels of up to 3 x 3, strides of 1 and 2, no dilation,
// bits or (`adds`) addends and sums of 16 bits, enough pixels for the device.
bool conv_box_fits(const ConvAddArgs& args, bool adds, const Context& context);

// args.conv.prepared must be given: the counts of taps always serve, limits only bits of plain
// convolutions. `prefetches`: weights and what is prepared were there before the kernel in front.
cudaError_t conv_box(const ConvAddArgs& args, bool adds, bool prefetches, const Context& context);

}  // namespace bitgnn::cuda::conv
