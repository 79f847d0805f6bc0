// Fully connected first layers.
#pragma once

#include "conv/arguments.h"
#include "core/cuda/launch.h"
#include "first_layers/arguments.h"

namespace bitgnn::cuda::first_layers {

// Whether every output reads one pixel of features next to each other, few enough for the kernels.
bool suits_fixed_linear(const FixedConvArgs& args, const Context& context);
cudaError_t fixed_linear(const FixedConvArgs& args, const Context& context);

}  // namespace bitgnn::cuda::first_layers
