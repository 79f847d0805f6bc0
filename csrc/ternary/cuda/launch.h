// Launchers of ternary packing and of products of ternary rows on CUDA devices.
#pragma once

#include "core/cuda/launch.h"
#include "ternary/arguments.h"

namespace bitgnn::cuda::ternary {

// See TernaryPackArgs.
cudaError_t pack_ternary(const TernaryPackArgs& args, const Context& context);

// See TernaryColumnPackArgs.
cudaError_t pack_ternary_columns(const TernaryColumnPackArgs& args, const Context& context);

// See TernaryBmmArgs.
cudaError_t multiply_ternary(const TernaryBmmArgs& args, const Context& context);

// See TernaryLinearArgs.
cudaError_t linear_ternary(const TernaryLinearArgs& args, const Context& context);

// See TernaryMatmulArgs.
cudaError_t matmul_ternary(const TernaryMatmulArgs& args, const Context& context);

}  // namespace bitgnn::cuda::ternary
