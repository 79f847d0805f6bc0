// Products of packed rows on CUDA devices.
#pragma once

#include "bmm/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::bmm {

// See BmmArgs.
cudaError_t bmm(const BmmArgs& args, const Context& context);

// See BitsLinearArgs.
cudaError_t bits_linear(const BitsLinearArgs& args, const Context& context);

}  // namespace bitgnn::cuda::bmm
