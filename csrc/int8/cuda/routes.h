// Kernels for products of 8-bit rows; route.cu chooses among them.
#pragma once

#include "core/cuda/launch.h"
#include "int8/arguments.h"

namespace bitgnn::cuda::int8 {

// Whether the product of such codes takes addends as NeighbourSums, which multiply_int8() does
// otherwise not support.
bool adds_neighbour_sums(const Int8BmmArgs& args, const Context& context);

// Any shape, from codes or from floats. Small tiles suit few outputs and few rows.
cudaError_t int8_mma_codes(const Int8BmmArgs& args, bool small, const Context& context);
cudaError_t int8_mma_floats(const Int8BmmArgs& args, bool small, const Context& context);

// On Hopper, with the weights of `columns` outputs (64, 128 or 256) in a block's shared memory.
cudaError_t int8_wgmma_codes(const Int8BmmArgs& args, int columns, const Context& context);
cudaError_t int8_wgmma_floats(const Int8BmmArgs& args, int columns, const Context& context);

// Whether that memory holds them, and enough rows besides.
bool holds_wgmma(int64_t size, int columns, const Context& context);

}  // namespace bitgnn::cuda::int8
