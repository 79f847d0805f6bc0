// Plans and launches the warpgroup product of 8-bit rows.
#pragma once

#include <algorithm>

#include "core/cuda/hopper/tensor_map.h"
#include "core/cuda/shared_memory.h"
#include "int8/cuda/hopper/wgmma.cuh"
#include "int8/cuda/routes.h"

namespace bitgnn::cuda::int8 {

// Shared memory besides the ring.
inline int64_t wgmma_bytes(int64_t size, int columns, bool floats) {
  constexpr int64_t kAlignment = 1024;
  const int64_t chunks = ceil_div(size, kChunk);
  const auto tail = static_cast<int64_t>(columns == 256   ? sizeof(WgmmaTail<256>)
                                         : columns == 128 ? sizeof(WgmmaTail<128>)
                                                          : sizeof(WgmmaTail<64>));
  return kAlignment + chunks * columns * kSwizzleBytes + tail +
         (floats ? 2 * chunks * kChunk * int64_t{sizeof(float)} : 0);
}

template <Int8Output kOutput, int kColumns, bool kFloats>
cudaError_t launch_int8_wgmma(const Int8BmmArgs& a, const Context& context) {
  using Groups = WgmmaGroups<kColumns, kFloats>;
  const int64_t fixed = wgmma_bytes(a.size, kColumns, kFloats);
  WgmmaPlan plan{};
  plan.chunks = static_cast<int>(ceil_div(a.size, kChunk));
  plan.stages = static_cast<int>(
      std::min<int64_t>((context.device.shared_bytes - fixed) / kStageBytes, kMostStages));
  plan.row_tiles = ceil_div(a.rows, kWgmmaRows);
  plan.column_tiles = static_cast<int>(ceil_div(a.out_features, kColumns));
  plan.vectors = kFloats && has_vector_rows(*a.pack);

  CUtensorMap rows{}, weights;
  const int64_t words = int8_pitch(a.size) / 4;
  const auto encode = [&](CUtensorMap& map, const int8_t* from, int64_t count, int box) {
    return encode_rows(map, reinterpret_cast<const int32_t*>(from), count, words, box);
  };
  cudaError_t status = encode(weights, a.weight, a.out_features, kColumns);
  if (status == cudaSuccess && !kFloats) status = encode(rows, a.codes, a.rows, kWgmmaRows);
  const auto kernel = int8_wgmma_kernel<kOutput, kColumns, kFloats>;
  const int64_t bytes = fixed + int64_t{plan.stages} * kStageBytes;
  if (status == cudaSuccess) status = grant_shared_memory(kernel, bytes);
  if (status != cudaSuccess) return status;
  const int64_t workers = std::max<int64_t>(
      1, std::min(plan.row_tiles, int64_t{context.device.sm_count} / plan.column_tiles));
  return launch_dependent(kernel, grid_size(workers * plan.column_tiles), Groups::kThreads,
                          static_cast<size_t>(bytes), context, a,
                          kFloats ? *a.pack : Int8PackArgs{}, rows, weights, plan);
}

template <Int8Output kOutput, bool kFloats>
cudaError_t launch_int8_wgmma(const Int8BmmArgs& a, int columns, const Context& context) {
  switch (columns) {
    case 256:
      return launch_int8_wgmma<kOutput, 256, kFloats>(a, context);
    case 128:
      return launch_int8_wgmma<kOutput, 128, kFloats>(a, context);
    default:
      return launch_int8_wgmma<kOutput, 64, kFloats>(a, context);
  }
}

}  // namespace bitgnn::cuda::int8
