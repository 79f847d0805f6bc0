// Binary convolution on mma.sync tensor cores; one source file per kind of output.
#pragma once

#include <type_traits>

#include "conv/cuda/mma_plan.h"

namespace bitgnn::cuda::conv {

// Pixels by channels: 16 x 64 and 32 x 64 with the reduction split over warps, 64 x 64, 128 x 128;
// persistent kernels with tiles of 128 x 64 and 128 x 128.
enum class ConvTileKind { kTiny, kSmall, kMiddle, kLarge, kWalk, kWideWalk };

using ConvTinyTile = ConvTile<1, 2, 2, 1, 4, 6>;
using ConvSmallTile = ConvTile<2, 2, 2, 1, 4, 3>;
using ConvMiddleTile = ConvTile<4, 2, 1, 1, 4, 3>;
using ConvLargeTile = ConvTile<4, 2, 1, 2, 8, 1>;
using ConvWalkTile = ConvTile<8, 1, 1, 1, 8, 2>;
using ConvWideWalkTile = ConvTile<4, 2, 1, 2, 8, 1>;

constexpr bool walks(ConvTileKind kind) {
  return kind == ConvTileKind::kWalk || kind == ConvTileKind::kWideWalk;
}

// Calls f with a tile of the kind, and whether its kernel is persistent as a constant.
template <class F>
auto with_conv_tile(ConvTileKind kind, const F& f) {
  switch (kind) {
    case ConvTileKind::kTiny:
      return f(ConvTinyTile{}, std::false_type{});
    case ConvTileKind::kSmall:
      return f(ConvSmallTile{}, std::false_type{});
    case ConvTileKind::kMiddle:
      return f(ConvMiddleTile{}, std::false_type{});
    case ConvTileKind::kLarge:
      return f(ConvLargeTile{}, std::false_type{});
    case ConvTileKind::kWalk:
      return f(ConvWalkTile{}, std::true_type{});
    default:
      return f(ConvWideWalkTile{}, std::true_type{});
  }
}

// `vector`: words per copy; `prefetches`: see ConvMmaPlan. Only bits are pooled.
template <ConvResult kOutput>
cudaError_t conv_mma(const ConvAddArgs& args, ConvTileKind kind, int vector, const ConvPool& pool,
                     bool prefetches, const Context& context);

}  // namespace bitgnn::cuda::conv
