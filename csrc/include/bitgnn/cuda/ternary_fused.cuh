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

// Chosen by measurements on an H200.
template <class T>
cudaError_t linear_ternary_fused(const TernaryLinearArgs& args, const Context& context) {
  // Row tiles, row warps, output tiles, output warps, part warps, stages, batch.
  using OneRow = TernaryTile<1, 1, 2, 4, 5, 1, 1>;
  using FewRows = TernaryTile<1, 1, 2, 4, 3, 2, 8>;
  using FewNarrow = TernaryTile<1, 1, 1, 2, 8, 1, 2>;
  using Short = TernaryTile<1, 1, 1, 6, 4, 1, 1>;
  using ShortWide = TernaryTile<1, 1, 1, 24, 1, 2, 2>;
  using Long = TernaryTile<1, 1, 1, 6, 3, 2, 6>;
  const TernaryBmmArgs& a = args.product;
  if (a.rows <= 8) {
    if (2 * a.out_features < OneRow::kOutputs * context.device.sm_count)
      return launch_fused<FewNarrow, T>(args, context);
    return a.rows <= 2 ? launch_fused<OneRow, T>(args, context)
                       : launch_fused<FewRows, T>(args, context);
  }
  constexpr int64_t kShortSize = 1024;
  if (a.size > kShortSize) return launch_fused<Long, T>(args, context);
  return a.out_features >= 6 * ShortWide::kOutputs ? launch_fused<ShortWide, T>(args, context)
                                                   : launch_fused<Short, T>(args, context);
}

}  // namespace bitgnn::cuda
