// Packing to 8-bit rows and their products on CUDA devices.
#pragma once

#include "core/cuda/launch.h"
#include "int8/arguments.h"

namespace bitgnn::cuda::int8 {

// See Int8PackArgs.
cudaError_t pack_int8(const Int8PackArgs& args, const Context& context);

// Whether the product of such codes takes addends as NeighbourSums.
bool adds_neighbour_sums(const Int8BmmArgs& args, const Context& context);

// See Int8BmmArgs; NeighbourSums only where adds_neighbour_sums().
cudaError_t multiply_int8(const Int8BmmArgs& args, const Context& context);

}  // namespace bitgnn::cuda::int8
