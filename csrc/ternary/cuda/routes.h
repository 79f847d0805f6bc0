// The ways of ternary products, among which ternary/cuda/linear/route.cu chooses.
#pragma once

#include "ternary/cuda/launch.h"

namespace bitgnn::cuda::ternary {

// Products in warpgroups, for many rows on Hopper: values only.
bool suits_ternary_wgmma(const TernaryBmmArgs& args, const Context& context);
cudaError_t multiply_ternary_wgmma(const TernaryBmmArgs& args, const Context& context);
cudaError_t linear_ternary_wgmma(const TernaryLinearArgs& args, const Context& context);

// The same with weights that stay in shared memory, for very many rows.
bool suits_ternary_resident(const TernaryLinearArgs& args, const Context& context);
cudaError_t linear_ternary_resident(const TernaryLinearArgs& args, const Context& context);

// Products of packed rows in small tiles, for any shape and device.
cudaError_t multiply_ternary_tile(const TernaryBmmArgs& args, const Context& context);

// Packing and product of some tens of rows on Hopper, in warpgroups.
bool suits_ternary_groups(const TernaryLinearArgs& args, const Context& context);
cudaError_t linear_ternary_groups(const TernaryLinearArgs& args, const Context& context);

// Packs rows that may be boolean into both planes.
cudaError_t pack_ternary_planes(const TernaryPackArgs& args, const Context& context);

// Packing and product in one launch, for few rows of one type.
cudaError_t linear_ternary_half(const TernaryLinearArgs& args, const Context& context);
cudaError_t linear_ternary_bfloat16(const TernaryLinearArgs& args, const Context& context);
cudaError_t linear_ternary_float(const TernaryLinearArgs& args, const Context& context);

}  // namespace bitgnn::cuda::ternary
