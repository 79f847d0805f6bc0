// Launches the packing and wgmma product of a few dozen float rows.
#include "core/cuda/shared_memory.h"
#include "core/cuda/with_quantised_type.h"
#include "ternary/cuda/hopper/linear_some_rows.cuh"
#include "ternary/cuda/linear/tile_launch.cuh"
#include "ternary/cuda/routes.h"

namespace bitgnn::cuda::ternary {

cudaError_t linear_ternary_groups(const TernaryLinearArgs& args, const Context& context) {
  const TernaryPackArgs& p = args.pack;
  const TernaryBmmArgs& a = args.product;
  const auto words = static_cast<int>(words_for(p.size));
  const auto chunks = static_cast<int>(ceil_div(words, kGroupChunkWords));
  const int64_t row_tiles = ceil_div(a.rows, kGroupRows);
  const size_t bytes = static_cast<size_t>(group_tile_words(chunks)) * sizeof(uint32_t);
  auto* tiles =
      static_cast<uint32_t*>(context.workspace.take(static_cast<size_t>(row_tiles) * bytes));
  return with_quantised_type(p.type, [&](auto zero) {
    using T = decltype(zero);
    const GroupPackArgs<T> pack{static_cast<const T*>(p.x),
                                p.strides[2],
                                static_cast<int>(p.size),
                                p.scale,
                                p.boolean ? 0u : ~0u,
                                tiles,
                                chunks};
    cudaError_t status = launch_dependent(ternary_group_pack_kernel<T>, dim3(grid_size(a.rows)),
                                          chunks * kWarp, 0, context, pack);
    if (status != cudaSuccess) return status;
    const auto kernel = ternary_group_kernel<HalfOf<T>>;
    status = grant_shared_memory(kernel, static_cast<int64_t>(bytes));
    if (status != cudaSuccess) return status;
    const TernaryGroupPlan plan{tiles, words, chunks, stores_fours<HalfOf<T>>(a)};
    return launch_dependent(
        kernel, dim3(grid_size(ceil_div(a.out_features, kGroupOutputs)), grid_size(row_tiles)),
        kGroupThreads, bytes, context, a, plan);
  });
}

}  // namespace bitgnn::cuda::ternary
