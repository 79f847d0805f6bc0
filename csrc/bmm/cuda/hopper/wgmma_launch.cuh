// Launches the warpgroup product: row popcounts, then the tiles, with overlapping launches.
#pragma once

#include <algorithm>

#include "bmm/cuda/hopper/wgmma.cuh"
#include "bmm/cuda/output.cuh"
#include "bmm/cuda/row_counts.cuh"
#include "core/cuda/hopper/tensor_map.h"

namespace bitgnn::cuda::bmm {

// Operands aligned for bulk copies, with their popcounts.
struct WgmmaOperands {
  const int32_t* x;
  const int32_t* w;
  const int32_t* row_counts;
  const int32_t* column_counts;
  int64_t pitch;  // words of a row
};

inline cudaError_t prepare_operands(WgmmaOperands& operands, const BmmArgs& args,
                                    const Context& context) {
  const auto words = static_cast<int>(words_for(args.size));
  const int64_t counted = args.rows + args.out_features;
  const dim3 grid(grid_size(ceil_div(counted, kCountRows)));
  const auto take = [&](int64_t count) {
    return static_cast<int32_t*>(
        context.workspace.take(static_cast<size_t>(count) * sizeof(int32_t)));
  };
  int32_t* counts = take(counted);
  operands.row_counts = counts;
  operands.column_counts = counts + args.rows;
  const auto address = reinterpret_cast<uintptr_t>(args.x) | reinterpret_cast<uintptr_t>(args.w);
  if (words % 4 == 0 && address % 16 == 0) {
    operands.x = args.x;
    operands.w = args.w;
    operands.pitch = words;
    return launch_dependent(bmm_counts_kernel, grid, kCountThreads, 0, context, args.x, args.rows,
                            args.w, args.out_features, words, counts);
  }
  const int pitch = (words + 3) / 4 * 4;
  int32_t* padded = take(counted * pitch);
  operands.x = padded;
  operands.w = padded + args.rows * pitch;
  operands.pitch = pitch;
  return launch_dependent(bmm_pad_kernel, grid, kCountThreads, 0, context, args.x, args.rows,
                          args.w, args.out_features, words, pitch, padded, counts);
}

template <BmmOutput kOutput>
cudaError_t launch_bmm_wgmma(const BmmArgs& args, const Context& context) {
  WgmmaOperands operands{};
  cudaError_t status = prepare_operands(operands, args, context);
  if (status != cudaSuccess) return status;

  WgmmaPlan plan{};
  plan.row_counts = operands.row_counts;
  plan.column_counts = operands.column_counts;
  plan.blocks = static_cast<int>(ceil_div(operands.pitch, kSwizzleWords));
  plan.row_tiles = static_cast<int>(ceil_div(args.rows, kWgmmaTileRows));
  plan.column_tiles = static_cast<int>(ceil_div(args.out_features, kWgmmaColumns));

  CUtensorMap x_map, w_map;
  status = encode_rows(x_map, operands.x, args.rows, operands.pitch, kWgmmaTileRows);
  if (status != cudaSuccess) return status;
  status = encode_rows(w_map, operands.w, args.out_features, operands.pitch, kWgmmaColumns);
  if (status != cudaSuccess) return status;

  const auto kernel = bmm_wgmma_kernel<kOutput>;
  constexpr size_t kBytes = sizeof(WgmmaShared) + 1024;  // plus alignment of the stages
  status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(kBytes));
  if (status != cudaSuccess) return status;
  const int64_t tiles = static_cast<int64_t>(plan.row_tiles) * plan.column_tiles;
  const int64_t blocks = std::min<int64_t>(tiles, context.device.sm_count);
  return launch_dependent(kernel, grid_size(blocks), kWgmmaThreads, kBytes, context, args, x_map,
                          w_map, plan);
}

}  // namespace bitgnn::cuda::bmm
