// Bits of products of packed rows with weights that shared memory holds twice.
#pragma once

#include "bmm/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::bmm {

// As bmm(), where suits_compared() says so and no scale of a row acts.
bool suits_compared(const BmmArgs& args, const Context& context);
cudaError_t bmm_compared(const BmmArgs& args, const Context& context);

}  // namespace bitgnn::cuda::bmm
