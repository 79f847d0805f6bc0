// Launch of a whole model as one kernel.
#pragma once

#include "core/cuda/launch.h"
#include "whole_model/cooperative.h"

namespace bitgnn::cuda::whole_model {

// Whether a block's share of the model fits in its shared memory.
bool cooperative_fits(const CooperativeArgs& args, const Context& context);

// Runs all stages with args.blocks blocks, one per SM; see CooperativeArgs.
cudaError_t run_stages(const CooperativeArgs& args, const Context& context);

}  // namespace bitgnn::cuda::whole_model
