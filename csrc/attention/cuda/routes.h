// Kernels for attention on bits; route.cu chooses among them.
#pragma once

#include "attention/arguments.h"

namespace bitgnn::cuda::attention {

// Hopper kernel with the keys and values of a head resident in shared memory; 33 to 64 features.
cudaError_t attention_resident(const TernaryAttentionArgs& args, const Context& context);

}  // namespace bitgnn::cuda::attention
