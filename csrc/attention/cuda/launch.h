// Launchers of attention on bits on CUDA devices.
#pragma once

#include "attention/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::attention {

// The largest head size that attention_ternary() supports.
int64_t largest_attention_head(const Device& device);

// See TernaryAttentionArgs.
cudaError_t attention_ternary(const TernaryAttentionArgs& args, const Context& context);

// True if attention_ternary_floats() supports these arguments on this device.
bool suits_floats(const TernaryFloatAttentionArgs& args, const Device& device);

// See TernaryFloatAttentionArgs.
cudaError_t attention_ternary_floats(const TernaryFloatAttentionArgs& args, const Context& context);

}  // namespace bitgnn::cuda::attention
