// Packing and product of few float rows in one launch: choice of the tile by shape.
#pragma once

#include "ternary/cuda/linear/one_launch.cuh"
#include "ternary/cuda/linear/tile_launch.cuh"
#include "ternary/cuda/routes.h"

namespace bitgnn::cuda::ternary {

template <class Few, class T>
cudaError_t launch_few(const TernaryLinearArgs& args, const Context& context) {
  const TernaryPackArgs& p = args.pack;
  const TernaryBmmArgs& a = args.product;
  const FewRows<T> rows{static_cast<const T*>(p.x), p.strides[2], static_cast<int>(p.size), p.scale,
                        p.boolean ? 0u : ~0u};
  TernaryFewPlan plan{};
  plan.words = static_cast<int>(words_for(p.size));
  plan.chunks = static_cast<int>(ceil_div(plan.words, Few::kChunkWords));
  plan.pitch = few_pitch<Few>(plan.chunks);
  plan.row_pieces = FastDivisor(2 * plan.words);
  plan.fours = stores_fours<HalfOf<T>>(a);
  const int64_t bytes = (int64_t{Few::kPackedRows} * plan.pitch +
                         (Few::kPartWarps > 1 ? Few::kThreads * Few::kTiles * 4 : 0)) *
                        4;
  const auto kernel = ternary_few_kernel<T, Few>;
  const cudaError_t status = grant_shared_memory(kernel, bytes);
  if (status != cudaSuccess) return status;
  return launch_dependent(kernel,
                          dim3(grid_size(ceil_div(a.out_features, Few::kOutputs)),
                               grid_size(ceil_div(a.rows, kFewRows))),
                          Few::kThreads, static_cast<size_t>(bytes), context, a, rows, plan);
}

// Tiles were chosen by measurements on an H200.
template <class T>
cudaError_t linear_ternary_fused(const TernaryLinearArgs& args, const Context& context) {
  // Output tiles, output warps, part warps, stages, steps, batch, rows of exact tiles.
  using OneRow = TernaryFew<2, 4, 5, 1, 2, 1>;
  using OneNarrow = TernaryFew<2, 1, 8, 1, 2, 1>;
  using OneExact = TernaryFew<1, 2, 4, 2, 2, 1, 1>;  // 4096
  using FewNarrow = TernaryFew<2, 1, 8, 1, 2, 4>;
  using FewWide = TernaryFew<2, 4, 3, 2, 2, 8>;
  using Short = TernaryFew<1, 6, 1, 3, 1, 2>;
  using ShortExact = TernaryFew<1, 6, 1, 3, 1, 2, 8>;  // 768
  using ShortWide = TernaryFew<2, 12, 1, 3, 1, 1>;
  using WideExact = TernaryFew<2, 12, 1, 3, 1, 1, 8>;
  using Long = TernaryFew<1, 6, 3, 2, 2, 3>;
  using LongExact = TernaryFew<1, 6, 2, 3, 2, 4, 8>;  // 3072
  const TernaryBmmArgs& a = args.product;
  const auto exact = [&](int words) { return a.size == words * kWordBits; };
  if (a.rows <= kFewRows) {
    if (2 * a.out_features >= OneRow::kOutputs * context.device.sm_count)
      return a.rows <= 2 ? launch_few<OneRow, T>(args, context)
                         : launch_few<FewWide, T>(args, context);
    if (a.rows == 1 && exact(OneExact::kWords)) return launch_few<OneExact, T>(args, context);
    return a.rows <= 2 ? launch_few<OneNarrow, T>(args, context)
                       : launch_few<FewNarrow, T>(args, context);
  }
  constexpr int64_t kShortSize = 1024;
  if (a.size > kShortSize)
    return exact(LongExact::kWords) ? launch_few<LongExact, T>(args, context)
                                    : launch_few<Long, T>(args, context);
  if (a.out_features >= 6 * ShortWide::kOutputs)
    return exact(WideExact::kWords) ? launch_few<WideExact, T>(args, context)
                                    : launch_few<ShortWide, T>(args, context);
  return exact(ShortExact::kWords) ? launch_few<ShortExact, T>(args, context)
                                   : launch_few<Short, T>(args, context);
}

}  // namespace bitgnn::cuda::ternary
