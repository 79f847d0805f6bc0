// Launches of what images pass through beside convolutions of bits.
#pragma once

#include "conv/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda {

// See ImagePackArgs.
cudaError_t pack_images(const ImagePackArgs& args, const Context& context);

// See BitPoolArgs.
cudaError_t pool_bits(const BitPoolArgs& args, const Context& context);

// See FixedConvArgs. `prepared` is int32 [out_channels, taps + 2], of which the last two columns
// count: the least dot whose comparison holds and whether the bit is turned round. Where it is
// given, it and the weights must have been written before the kernel in front of this one in the
// stream began: they are read while that one still runs.
cudaError_t convolve_fixed(const FixedConvArgs& args, const Context& context);

}  // namespace bitgnn::cuda
