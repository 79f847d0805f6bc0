// Kernels for products of packed and of float rows; route.cu and floats/route.cu choose among them.
#pragma once

#include "bmm/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::bmm {

// Products of few packed rows with many weights.
cudaError_t bmm_few(const BmmArgs& args, const Context& context);

// Bit outputs of packed rows without row scales, with the weights kept on chip: in shared memory,
// or in registers for short rows.
cudaError_t bmm_compared_direct(const BmmArgs& args, const Context& context);
cudaError_t bmm_compared(const BmmArgs& args, const Context& context);

// Float rows, packed on the fly or into scratch memory first: like bmm(), with args.pack set and
// args.x null; called by bmm() when `pack` is set.
cudaError_t bmm_packing(const BmmArgs& args, const Context& context);

// The same for bit outputs of contiguous float32 rows on Hopper, loaded by the TMA for each warp or
// for teams of warps.
cudaError_t bmm_packing_tma(const BmmArgs& args, bool teams, const Context& context);

}  // namespace bitgnn::cuda::bmm
