// Aggregation on CUDA devices.
#pragma once

#include "bspmm/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::bspmm {

// Bit-sliced counts; x_type is kBits and there are no values.
cudaError_t aggregate_bits(const AggregateArgs& args, const Context& context);
// Every other combination: float32 sums in edge order, or int32 sums of integer rows.
cudaError_t aggregate_dense(const AggregateArgs& args, const Context& context);
// x holds ternary rows, each with its two planes back to back, without gaps.
cudaError_t aggregate_ternary(const AggregateArgs& args, const Context& context);
// The layouts of FrdcArgs and SlicedArgs; x holds bits.
cudaError_t aggregate_frdc(const FrdcArgs& args, const Context& context);
cudaError_t aggregate_sliced(const SlicedArgs& args, const Context& context);

// See SlotSumsArgs.
cudaError_t aggregate_slots(const SlotSumsArgs& args, const Context& context);

}  // namespace bitgnn::cuda::bspmm
