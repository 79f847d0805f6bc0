// Products whose activations are packed on the way, in one launch and without scratch memory.
#pragma once

#include "bmm/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::bmm {

// As bmm(), with args.pack given and args.x null: what bmm() calls when `pack` is given.
cudaError_t bmm_packing(const BmmArgs& args, const Context& context);

// The same for any shape and device: every warp reads the weights that it needs.
cudaError_t bmm_streaming(const BmmArgs& args, const Context& context);

// The same for bits of contiguous float32 rows on Hopper; suits_bulk() says where.
bool suits_bulk(const BmmArgs& args, const Context& context);
cudaError_t bmm_packing_bulk(const BmmArgs& args, const Context& context);

// The same for many rows on Hopper; suits_ring() says where.
bool suits_ring(const BmmArgs& args, const Context& context);
cudaError_t bmm_packing_ring(const BmmArgs& args, const Context& context);

}  // namespace bitgnn::cuda::bmm
