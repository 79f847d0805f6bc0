// Aggregation on CUDA devices.
#pragma once

#include "bspmm/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::bspmm {

// x_type kBits and no values: bit-sliced counts.
cudaError_t aggregate_bits(const AggregateArgs& args, const Context& context);
// Every other combination: float32 sums in edge order, or int32 sums of integer rows.
cudaError_t aggregate_dense(const AggregateArgs& args, const Context& context);
// x holds both planes of ternary rows behind each other, without gaps.
cudaError_t aggregate_ternary(const AggregateArgs& args, const Context& context);
// The layouts of FrdcArgs, BlockedArgs and SlicedArgs; x holds bits.
cudaError_t aggregate_frdc(const FrdcArgs& args, const Context& context);
cudaError_t aggregate_blocked(const BlockedArgs& args, const Context& context);
cudaError_t aggregate_sliced(const SlicedArgs& args, const Context& context);

// See SlotSumsArgs.
cudaError_t aggregate_slots(const SlotSumsArgs& args, const Context& context);

}  // namespace bitgnn::cuda::bspmm
