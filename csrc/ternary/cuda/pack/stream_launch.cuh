// Launches the streaming packing of many rows.
#pragma once

#include <algorithm>

#include "core/cuda/with_quantised_type.h"
#include "ternary/cuda/pack/stream.cuh"

namespace bitgnn::cuda::ternary {

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
