// Launches the streaming packing of many rows.
#pragma once

#include <algorithm>

#include "core/cuda/with_quantised_type.h"
#include "ternary/cuda/pack/stream.cuh"

namespace bitgnn::cuda::ternary {

// True for rows at one stride, made of whole, aligned pieces.
inline bool suits_ternary_stream(const TernaryPackArgs& a) {
  return a.sizes[2] == a.rows() && a.size % kPieceFloats == 0 && a.rows() < (1 << 30) &&
         a.size < (1 << 30) && has_aligned_rows(a.x, a.type, a.strides);
}

// Additional blocks count the bits of `weights`; there are none if `weights` is empty.
inline cudaError_t stream_ternary(const TernaryPackArgs& args, CountedWeights weights,
                                  const Context& context) {
  weights.row_blocks =
      static_cast<int>(std::min(ceil_div(args.rows(), kTernaryPackWarps),
                                static_cast<int64_t>(kStreamBlocks) * context.device.sm_count));
  const int64_t blocks = weights.row_blocks + ceil_div(weights.outputs, kTernaryPackWarps);
  return with_quantised_type(args.type, [&](auto zero) {
    return launch_dependent(ternary_stream_kernel<decltype(zero)>, dim3(grid_size(blocks)),
                            kTernaryPackWarps * kWarp, 0, context, args, weights);
  });
}

}  // namespace bitgnn::cuda::ternary
