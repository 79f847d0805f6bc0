// The product whose activations are packed on the way: what bmm() calls when `pack` is given.
#pragma once

#include "bitgnn/cuda/launch.h"

namespace bitgnn::cuda {

// As bmm(), with args.pack given and args.x null.
cudaError_t bmm_packing(const BmmArgs& args, const Context& context);

}  // namespace bitgnn::cuda
