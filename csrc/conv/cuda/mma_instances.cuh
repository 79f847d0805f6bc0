// Instantiates the mma.sync binary convolution for each tile shape and launches it.
#pragma once

#include <type_traits>

#include "conv/cuda/mma.cuh"
#include "conv/cuda/mma_persistent.cuh"
#include "conv/cuda/mma_tiles.h"

namespace bitgnn::cuda::conv {

template <class Tile, ConvResult kOutput, bool kWalks>
cudaError_t run_conv_tile(const ConvAddArgs& args, int vector, const ConvPool& pool,
                          bool prefetches, const Context& context) {
  const auto launch = [&](auto copied) {
    constexpr int kVector = decltype(copied)::value;
    if constexpr (kWalks) {
      return launch_conv_walk<Tile, kVector, kOutput>(args, prefetches, context);
    } else {
      return launch_conv_mma<Tile, kVector, kOutput>(args, pool, prefetches, context);
    }
  };
  switch (vector) {
    case 4:
      return launch(std::integral_constant<int, 4>{});
    case 2:
      return launch(std::integral_constant<int, 2>{});
    default:
      return launch(std::integral_constant<int, 1>{});
  }
}

template <ConvResult kOutput>
cudaError_t run_conv_tile(const ConvAddArgs& args, ConvTileKind kind, int vector,
                          const ConvPool& pool, bool prefetches, const Context& context) {
  switch (kind) {
    case ConvTileKind::kTiny:
      return run_conv_tile<ConvTinyTile, kOutput, false>(args, vector, pool, prefetches, context);
    case ConvTileKind::kSmall:
      return run_conv_tile<ConvSmallTile, kOutput, false>(args, vector, pool, prefetches, context);
    case ConvTileKind::kMiddle:
      return run_conv_tile<ConvMiddleTile, kOutput, false>(args, vector, pool, prefetches, context);
    case ConvTileKind::kLarge:
      return run_conv_tile<ConvLargeTile, kOutput, false>(args, vector, pool, prefetches, context);
    case ConvTileKind::kWalk:
      return run_conv_tile<ConvWalkTile, kOutput, true>(args, vector, pool, prefetches, context);
    default:
      return run_conv_tile<ConvWideWalkTile, kOutput, true>(args, vector, pool, prefetches,
                                                            context);
  }
}

}  // namespace bitgnn::cuda::conv
