// Kernels for ternary linear products; ternary/cuda/linear/route.cu chooses among them.
#pragma once

#include "ternary/arguments.h"

namespace bitgnn::cuda::ternary {

// Warpgroup (wgmma) product for many rows on Hopper; value outputs only.
cudaError_t multiply_ternary_wgmma(const TernaryBmmArgs& args, const Context& context);
cudaError_t linear_ternary_wgmma(const TernaryLinearArgs& args, const Context& context);

// The same with weights resident in shared memory, for very many rows.
cudaError_t linear_ternary_resident(const TernaryLinearArgs& args, const Context& context);

// Product of packed rows in small tiles, one of those named in linear/tile.h.
template <class Tile>
cudaError_t multiply_ternary_tile(const TernaryBmmArgs& args, const Context& context);

// The same with plain instructions, for any shape and device.
cudaError_t multiply_ternary_simt(const TernaryBmmArgs& args, const Context& context);

// Packing and warpgroup product of a few dozen rows on Hopper.
cudaError_t linear_ternary_groups(const TernaryLinearArgs& args, const Context& context);

// True if stream_ternary() packs the rows: they have one stride and whole, aligned pieces.
bool suits_stream(const TernaryPackArgs& args);

// Packs rows into both planes, even if they are boolean.
cudaError_t pack_ternary_planes(const TernaryPackArgs& args, const Context& context);

// Packing and product in one launch, for few rows; one function per input type.
cudaError_t linear_ternary_half(const TernaryLinearArgs& args, const Context& context);
cudaError_t linear_ternary_bfloat16(const TernaryLinearArgs& args, const Context& context);
cudaError_t linear_ternary_float(const TernaryLinearArgs& args, const Context& context);

}  // namespace bitgnn::cuda::ternary
