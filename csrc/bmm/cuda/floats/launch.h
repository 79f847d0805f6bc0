// Products that pack their activations, on the fly or into scratch memory first.
#pragma once

#include "bmm/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::bmm {

// Like bmm(), with args.pack set and args.x null; called by bmm() when `pack` is set.
cudaError_t bmm_packing(const BmmArgs& args, const Context& context);

// The same for any shape, on devices with 1-bit products and for types that are not rare: each warp
// reads the weights it needs.
cudaError_t bmm_streaming(const BmmArgs& args, const Context& context);

// The same for bit outputs of contiguous float32 rows on Hopper, where suits_bulk() holds.
bool suits_bulk(const BmmArgs& args, const Context& context);
cudaError_t bmm_packing_bulk(const BmmArgs& args, const Context& context);

}  // namespace bitgnn::cuda::bmm
