// The tiles that binary convolution on tensor cores is compiled for, and their launches.
#pragma once

#include "bitgnn/cuda/conv_mma.cuh"
#include "bitgnn/cuda/conv_tiles.h"

namespace bitgnn::cuda {

template <ConvOutput kOutput>
cudaError_t run_conv_tile(const ConvAddArgs& args, ConvTileKind kind, int vector, bool prefetches,
                          const Context& context) {
  return with_conv_tile(kind, [&](auto tile) {
    using Tile = decltype(tile);
    switch (vector) {
      case 4:
        return launch_conv_mma<Tile, 4, kOutput>(args, prefetches, context);
      case 2:
        return launch_conv_mma<Tile, 2, kOutput>(args, prefetches, context);
      default:
        return launch_conv_mma<Tile, 1, kOutput>(args, prefetches, context);
    }
  });
}

}  // namespace bitgnn::cuda
