// First layers on CUDA devices.
#pragma once

#include "core/cuda/launch.h"
#include "first_layers/arguments.h"

namespace bitgnn::cuda::first_layers {

// See FixedConvArgs. `prepared` is int32 [out_channels, taps + 2], of which the last two columns
// count: the least dot whose comparison holds and whether the bit is turned round. Where it is
// given, it and the weights must have been written before the kernel in front of this one in the
// stream began: they are read while that one still runs.
cudaError_t convolve_fixed(const FixedConvArgs& args, const Context& context);

}  // namespace bitgnn::cuda::first_layers
