// Launches the wgmma product of ternary rows: a kernel that prepares operands, then the product.
#include <algorithm>

#include "core/cuda/hopper/tensor_map.h"
#include "core/cuda/shared_memory.h"
#include "core/cuda/with_quantised_type.h"
#include "ternary/cuda/hopper/linear_wgmma.cuh"
#include "ternary/cuda/pack/stream_launch.cuh"
#include "ternary/cuda/routes.h"

namespace bitgnn::cuda::ternary {
namespace {

// Workspace of a product.
struct Prepared {
  int32_t* planes;       // [rows, 2, words]: pos and the complement of neg
  int32_t* differences;  // [rows]
  CountedWeights weights;
  unsigned blocks;

  // block_rows: rows prepared per block.
  Prepared(const TernaryBmmArgs& a, int64_t block_rows, const Context& context) {
    const auto words = static_cast<int>(words_for(a.size));
    const auto take = [&](int64_t count) {
      return static_cast<int32_t*>(
          context.workspace.take(static_cast<size_t>(count) * sizeof(int32_t)));
    };
    planes = take(a.rows * 2 * words);
    differences = take(a.rows + a.out_features);
    const auto row_blocks = static_cast<int>(ceil_div(a.rows, block_rows));
    weights = {a.w, a.out_features, words, differences + a.rows, row_blocks};
    blocks = grid_size(row_blocks + ceil_div(a.out_features, kTernaryPackWarps));
  }
};

template <int kColumns>
cudaError_t launch(const TernaryBmmArgs& a, const Prepared& prepared, const Context& context) {
  const int words = prepared.weights.words;
  TernaryWgmmaPlan plan{};
  plan.words = words;
  plan.blocks = static_cast<int>(ceil_div(words, kSwizzleWords));
  plan.row_tiles = static_cast<int>(ceil_div(a.rows, kTernaryTileRows));
  plan.column_tiles = static_cast<int>(ceil_div(a.out_features, kColumns));
  plan.differences = prepared.differences;
  plan.weight_counts = prepared.weights.counts;
  plan.vectors = a.out_features % 8 == 0 && is_aligned(a.out);
  CUtensorMap x_map, w_map;
  cudaError_t status = encode_rows(x_map, prepared.planes, a.rows, 2 * words, kTernaryTileRows);
  if (status != cudaSuccess) return status;
  status = encode_rows(w_map, a.w, a.out_features, words, kColumns);
  if (status != cudaSuccess) return status;
  const auto kernel = ternary_wgmma_kernel<kColumns>;
  // Plus slack to align the stages.
  constexpr size_t kBytes = sizeof(typename TernaryWgmma<kColumns>::Shared) + 1024;
  status = grant_shared_memory(kernel, kBytes);
  if (status != cudaSuccess) return status;
  const int64_t tiles = int64_t{plan.row_tiles} * plan.column_tiles;
  return launch_dependent(kernel,
                          dim3(grid_size(std::min<int64_t>(tiles, context.device.sm_count))),
                          kTernaryThreads, kBytes, context, a, x_map, w_map, plan);
}

// Wide tiles read less; with fewer rows, narrow tiles are needed to fill the device.
cudaError_t launch(const TernaryBmmArgs& a, const Prepared& prepared, const Context& context) {
  const int64_t wide = ceil_div(a.rows, kTernaryTileRows) * ceil_div(a.out_features, 256);
  return wide >= context.device.sm_count ? launch<256>(a, prepared, context)
                                         : launch<128>(a, prepared, context);
}

}  // namespace

cudaError_t multiply_ternary_wgmma(const TernaryBmmArgs& args, const Context& context) {
  const Prepared prepared(args, kTernaryPackWarps, context);
  const cudaError_t status =
      launch_dependent(ternary_complement_kernel, dim3(prepared.blocks), kTernaryPackWarps * kWarp,
                       0, context, args, prepared.weights, prepared.planes, prepared.differences);
  return status != cudaSuccess ? status : launch(args, prepared, context);
}

cudaError_t linear_ternary_wgmma(const TernaryLinearArgs& args, const Context& context) {
  const bool few = has_few_rows(args.product.rows, context);
  const Prepared prepared(args.product, few ? 1 : kTernaryPackWarps, context);
  TernaryPackArgs pack = args.pack;
  pack.words = prepared.planes;
  pack.counts = prepared.differences;
  if (!few && suits_stream(pack)) {
    const cudaError_t status = stream_ternary(pack, prepared.weights, context);
    return status != cudaSuccess ? status : launch(args.product, prepared, context);
  }
  const cudaError_t status = with_quantised_type(pack.type, [&](auto zero) {
    using T = decltype(zero);
    const bool aligned = has_aligned_rows(pack.x, pack.type, pack.strides);
    const auto kernel =
        few ? ternary_prepare_kernel<T, kTernaryPackWarps> : ternary_prepare_kernel<T, 1>;
    return launch_dependent(kernel, dim3(prepared.blocks), kTernaryPackWarps * kWarp, 0, context,
                            pack, aligned, prepared.weights);
  });
  return status != cudaSuccess ? status : launch(args.product, prepared, context);
}

}  // namespace bitgnn::cuda::ternary
