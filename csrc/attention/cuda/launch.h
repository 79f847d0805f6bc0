// Attention on bits on CUDA devices.
#pragma once

#include "attention/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::attention {

// Features of the largest head that attention_ternary() takes.
int64_t largest_attention_head(const Device& device);

// See TernaryAttentionArgs.
cudaError_t attention_ternary(const TernaryAttentionArgs& args, const Context& context);

// Whether attention_ternary_floats() takes these arguments on this device.
bool attends_to_floats(const TernaryFloatAttentionArgs& args, const Device& device);

// See TernaryFloatAttentionArgs.
cudaError_t attention_ternary_floats(const TernaryFloatAttentionArgs& args, const Context& context);

}  // namespace bitgnn::cuda::attention
