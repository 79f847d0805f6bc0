// Kernels for fully connected first layers; route.cu chooses among them.
#pragma once

#include "conv/arguments.h"
#include "core/cuda/launch.h"
#include "first_layers/arguments.h"

namespace bitgnn::cuda::first_layers {

constexpr int64_t kFewLinearRows = 16;  // up to which a kernel of its own multiplies rows

// Every output reads one pixel of contiguous features.
cudaError_t fixed_linear(const FixedConvArgs& args, const Context& context);

// The same for more rows on Hopper, as products of bytes.
cudaError_t fixed_linear_bytes(const FixedConvArgs& args, const Context& context);

}  // namespace bitgnn::cuda::first_layers
