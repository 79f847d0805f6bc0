// Kernels for batched products of packed ternary and boolean rows; route.cu chooses among them.
#pragma once

#include "core/cuda/launch.h"
#include "ternary/arguments.h"

namespace bitgnn::cuda::ternary {

// Floats of ternary rows of few words, read straight from global memory.
cudaError_t multiply_ternary_short(const TernaryMatmulArgs& args, const Context& context);

// Floats of boolean rows, read straight from global memory; meant for few ternary columns.
cudaError_t multiply_ternary_narrow(const TernaryMatmulArgs& args, const Context& context);

// True if every row and matrix of the operand starts at a multiple of `words` words.
inline bool begins_at(const TernaryOperand& x, int64_t words) {
  return x.batch_strides[0] % words == 0 && x.batch_strides[1] % words == 0 &&
         x.row_stride % words == 0 && is_aligned(x.words, static_cast<size_t>(4 * words));
}

// True if eight adjacent results can be stored with 16-byte vector stores.
inline bool stores_eights(const TernaryMatmulArgs& a) {
  return a.columns % 8 == 0 && is_aligned(a.out);
}

}  // namespace bitgnn::cuda::ternary
