// Fully connected first layers on CUDA.
#pragma once

#include "conv/arguments.h"
#include "core/cuda/launch.h"
#include "first_layers/arguments.h"

namespace bitgnn::cuda::first_layers {

// Whether every output reads one pixel of contiguous features, few enough for the kernels.
bool suits_fixed_linear(const FixedConvArgs& args, const Context& context);
cudaError_t fixed_linear(const FixedConvArgs& args, const Context& context);

}  // namespace bitgnn::cuda::first_layers
