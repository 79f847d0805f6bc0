// Hopper's binary convolution for large problems, on warpgroup products.
#pragma once

#include "conv/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::conv {

// Whether conv_wgmma() takes the problem and is worthwhile for it: sm_90, one group of 64 or a
// multiple of 128 channels, outputs in multiples of 32, kernels of up to 7 x 7, strides of 1 and 2,
// no dilation, 16-bit addends and sums, enough tiles for the device. A plain convolution is
// ConvAddArgs{conv} without addend and sums.
bool conv_wgmma_fits(const ConvAddArgs& args, const Context& context);

// `adds`: sums with an addend as in ConvAddArgs, otherwise a plain convolution. args.conv.prepared
// must be given: the tap popcounts are always used, the limits only for the bits of plain
// convolutions.
cudaError_t conv_wgmma(const ConvAddArgs& args, bool adds, const Context& context);

}  // namespace bitgnn::cuda::conv
