// Bit outputs of packed-row products, with the weights kept on chip.
#pragma once

#include "bmm/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::bmm {

// Like bmm(), for arguments that suits_compared() accepts, none of which have a row scale.
bool suits_compared(const BmmArgs& args, const Context& context);
cudaError_t bmm_compared(const BmmArgs& args, const Context& context);

}  // namespace bitgnn::cuda::bmm
