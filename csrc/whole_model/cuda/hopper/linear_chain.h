// Interface of the chain of fully connected layers to the operators.
#pragma once

#include "core/cuda/launch.h"
#include "whole_model/linear_chain.h"

namespace bitgnn::cuda::whole_model {

// Whether a cluster of blocks can hold the weights of all layers; requires Hopper.
bool suits_linear_chain(const LinearChainArgs& args, const Context& context);

cudaError_t linear_chain(const LinearChainArgs& args, const Context& context);

}  // namespace bitgnn::cuda::whole_model
