// Plans and launches the warpgroup product of 8-bit rows.
#pragma once

#include <algorithm>

#include "core/cuda/hopper/tensor_map.h"
#include "core/cuda/shared_memory.h"
#include "int8/cuda/hopper/wgmma.cuh"
#include "int8/cuda/routes.h"

namespace bitgnn::cuda::int8 {

// Shared memory besides the rings.
template <int kColumns>
int64_t wgmma_bytes(int64_t size, bool floats) {
  constexpr int64_t kAlignment = 1024;
  const int64_t chunks = ceil_div(size, kChunk);
  return kAlignment + chunks * kColumns * kSwizzleBytes +
         static_cast<int64_t>(sizeof(WgmmaTail<kColumns>)) +
         (floats ? 2 * chunks * kChunk * int64_t{sizeof(float)} : 0);
}

// Stages of each ring.
template <int kColumns, bool kFloats>
int64_t wgmma_stages(int64_t size, const Context& context, int64_t buffers = 0) {
  constexpr int kRings = WgmmaGroups<kColumns, kFloats>::kConsumers;
  const int64_t left = context.device.shared_bytes - wgmma_bytes<kColumns>(size, kFloats) - buffers;
  return std::min<int64_t>(left / kStageBytes, kMostStages) / kRings;
}

// Whether addends come through the ring: their rows are whole 16-byte units.
inline bool stages_addend(const Int8BmmArgs& a) {
  if (a.neighbours.sums != nullptr) return true;
  return a.addend != nullptr && a.codes != nullptr && a.out_features % 4 == 0 &&
         is_aligned(a.addend);
}

inline cudaError_t encode_maps(WgmmaMaps& maps, const Int8BmmArgs& a, int columns, bool staged) {
  const int64_t words = int8_pitch(a.size) / 4;
  const auto encode = [](CUtensorMap& map, const void* from, int64_t rows, int64_t row_words,
                         int box) {
    return encode_rows(map, static_cast<const int32_t*>(from), rows, row_words, box);
  };
  cudaError_t status = encode(maps.weights, a.weight, a.out_features, words, columns);
  if (status == cudaSuccess && a.codes != nullptr)
    status = encode(maps.rows, a.codes, a.rows, words, kWgmmaRows);
  if (status == cudaSuccess && staged)
    status = a.neighbours.sums != nullptr
                 ? encode(maps.addend, a.neighbours.sums, a.rows, a.out_features / 2, kWgmmaRows)
                 : encode(maps.addend, a.addend, a.rows, a.out_features, kWgmmaRows);
  return status;
}

template <Int8Output kOutput, int kColumns, bool kFloats>
cudaError_t launch_int8_wgmma(const Int8BmmArgs& a, const Context& context) {
  using Groups = WgmmaGroups<kColumns, kFloats>;
  WgmmaPlan plan{};
  plan.chunks = static_cast<int>(ceil_div(a.size, kChunk));
  constexpr int64_t kUnit = 16, kLeastBufferedStages = 3;
  int64_t buffers = kFloats ? int64_t{Groups::kProducers} * kGroupWarps * kWarpBuffer : 0;
  plan.buffered = kFloats && has_vectors(*a.pack, kUnit) &&
                  wgmma_stages<kColumns, kFloats>(a.size, context, buffers) >= kLeastBufferedStages;
  if (!plan.buffered) buffers = 0;
  plan.stages = static_cast<int>(wgmma_stages<kColumns, kFloats>(a.size, context, buffers));
  plan.row_tiles = ceil_div(a.rows, kWgmmaRows);
  plan.column_tiles = static_cast<int>(ceil_div(a.out_features, kColumns));
  plan.vectors = kFloats && has_vector_rows(*a.pack);
  plan.staged = stages_addend(a);
  plan.slot_columns = kOutput == Int8Output::kSumBits ? kSumSlotColumns : kSlotColumns;
  plan.lines = a.out_features % 4 == 0 && is_aligned(a.out_float);

  WgmmaMaps maps{};
  cudaError_t status = encode_maps(maps, a, kColumns, plan.staged);
  const auto kernel = int8_wgmma_kernel<kOutput, kColumns, kFloats>;
  const int64_t bytes = wgmma_bytes<kColumns>(a.size, kFloats) +
                        int64_t{Groups::kConsumers} * plan.stages * kStageBytes + buffers;
  if (status == cudaSuccess) status = grant_shared_memory(kernel, bytes);
  if (status != cudaSuccess) return status;
  const int64_t workers =
      std::clamp<int64_t>(int64_t{context.device.sm_count} / plan.column_tiles, 1, plan.row_tiles);
  return launch_dependent(kernel, grid_size(workers * plan.column_tiles), Groups::kThreads,
                          static_cast<size_t>(bytes), context, a,
                          kFloats ? *a.pack : Int8PackArgs{}, maps, plan);
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
