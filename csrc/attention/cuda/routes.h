// The ways of attention on bits, among which route.cu chooses.
#pragma once

#include "attention/cuda/launch.h"

namespace bitgnn::cuda::attention {

// With the keys and values of a head in shared memory, on Hopper: heads of 33 to 64 features.
bool suits_resident_attention(const TernaryAttentionArgs& args, const Device& device);
cudaError_t attention_resident(const TernaryAttentionArgs& args, const Context& context);

}  // namespace bitgnn::cuda::attention
