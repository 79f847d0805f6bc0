// First layers on CUDA devices.
#pragma once

#include "core/cuda/launch.h"
#include "first_layers/arguments.h"

namespace bitgnn::cuda::first_layers {

// See FixedConvArgs. `prepared` is int32 [out_channels, taps + 2], of which only the last two
// columns are used: the smallest dot that satisfies the comparison, and whether the bit is
// inverted. If it is given, it and the weights must have been written before the previous kernel in
// the stream started, because they are read while that kernel still runs.
cudaError_t convolve_fixed(const FixedConvArgs& args, const Context& context);

}  // namespace bitgnn::cuda::first_layers
