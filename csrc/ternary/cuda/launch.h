// Ternary packing, products with weights of +-1 and aggregation on CUDA devices.
#pragma once

#include "core/cuda/launch.h"
#include "ternary/arguments.h"

namespace bitgnn::cuda {

// See TernaryPackArgs.
cudaError_t pack_ternary(const TernaryPackArgs& args, const Context& context);

// See TernaryColumnPackArgs.
cudaError_t pack_ternary_columns(const TernaryColumnPackArgs& args, const Context& context);

// See TernaryBmmArgs.
cudaError_t multiply_ternary(const TernaryBmmArgs& args, const Context& context);

// Rows of AggregateArgs are both planes of ternary values behind each other, without gaps.
cudaError_t aggregate_ternary(const AggregateArgs& args, const Context& context);

// See TernaryLinearArgs.
cudaError_t linear_ternary(const TernaryLinearArgs& args, const Context& context);

}  // namespace bitgnn::cuda
