// Instantiates the mma.sync binary convolution for each tile shape and launches it.
#pragma once

#include "conv/cuda/mma.cuh"
#include "conv/cuda/mma_persistent.cuh"
#include "conv/cuda/mma_tiles.h"

namespace bitgnn::cuda::conv {

template <ConvResult kOutput>
cudaError_t conv_mma(const ConvAddArgs& args, ConvTileKind kind, int vector, const ConvPool& pool,
                     bool prefetches, const Context& context) {
  return with_conv_tile(kind, [&](auto tile, auto walks) {
    using Tile = decltype(tile);
    const auto launch = [&](auto copied) {
      constexpr int kVector = decltype(copied)::value;
      if constexpr (decltype(walks)::value)
        return launch_conv_walk<Tile, kVector, kOutput>(args, prefetches, context);
      else
        return launch_conv_mma<Tile, kVector, kOutput>(args, pool, prefetches, context);
    };
    if (vector == 4) return launch(std::integral_constant<int, 4>{});
    if (vector == 2) return launch(std::integral_constant<int, 2>{});
    return launch(std::integral_constant<int, 1>{});
  });
}

}  // namespace bitgnn::cuda::conv
