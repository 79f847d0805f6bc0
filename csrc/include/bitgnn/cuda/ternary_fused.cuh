// Packing and product of few float rows in one launch: which tile serves which shape.
#pragma once

#include "bitgnn/cuda/ternary_routes.h"
#include "bitgnn/cuda/ternary_tile_launch.cuh"

namespace bitgnn::cuda {

template <class Tile, class T>
cudaError_t launch_fused(const TernaryLinearArgs& args, const Context& context) {
  const TernaryPackArgs& p = args.pack;
  const FloatSource<T> source{static_cast<const T*>(p.x), p.strides[2], static_cast<int>(p.size),
                              p.scale, p.boolean ? 0u : ~0u};
  return launch_ternary_tile<Tile, true, false>(args.product, source, context);
}

template <class T>
cudaError_t linear_ternary_fused(const TernaryLinearArgs& args, const Context& context) {
  // Row tiles, row warps, output tiles, output warps, part warps, stages, batch, cluster.
  using FewWide = TernaryTile<1, 1, 2, 4, 3, 2, 2>;
  using FewNarrow = TernaryTile<1, 1, 1, 2, 8, 1, 2>;
  using Short = TernaryTile<1, 1, 1, 6, 2, 1, 3>;
  using ShortWide = TernaryTile<1, 2, 1, 12, 1, 2, 3>;
  using Long = TernaryTile<1, 1, 1, 6, 3, 2, 2, 4>;
  const TernaryBmmArgs& a = args.product;
  if (a.rows <= FewWide::kRows) {
    return a.out_features >= FewWide::kOutputs * context.device.sm_count / 2
               ? launch_fused<FewWide, T>(args, context)
               : launch_fused<FewNarrow, T>(args, context);
  }
  constexpr int64_t kShortSize = 1024;
  if (a.size > kShortSize && context.device.capability == 90)
    return launch_fused<Long, T>(args, context);
  return a.out_features >= 8 * ShortWide::kOutputs ? launch_fused<ShortWide, T>(args, context)
                                                   : launch_fused<Short, T>(args, context);
}

}  // namespace bitgnn::cuda
