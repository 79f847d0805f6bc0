// Packs float rows as codes: a warp takes 128 columns of eight rows. Bound by reading the floats.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "int8/cuda/quantise.cuh"

namespace bitgnn::cuda::int8 {

constexpr int kPackThreads = 256;
constexpr int kPackWarps = kPackThreads / kWarp;

template <class T, bool kVector>
__global__ void __launch_bounds__(kPackThreads) pack_int8_kernel(const Int8PackArgs a) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto chunks = static_cast<int>((a.size + kChunk - 1) / kChunk);
  const int64_t pitch = int8_pitch(a.size);
  let_next_start();
  wait_for_previous();
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kPackWarps + threadIdx.x / kWarp;
  const int64_t first_row = warp / chunks * kBatch;
  const auto chunk = static_cast<int>(warp % chunks);
  if (first_row >= a.rows) return;
  LaneValues<T, kVector> values[kBatch];
  load_batch(values, a, first_row, chunk, lane);
  LaneScales scales;
  scales.load<kVector>(a, chunk, lane);
  const int64_t first_column = static_cast<int64_t>(chunk) * kChunk;
#pragma unroll
  for (int r = 0; r < kBatch; ++r) {
    if (first_row + r >= a.rows) break;
    int8_t* const row = a.codes + (first_row + r) * pitch + first_column;
    const uint32_t codes = lane_codes(values[r], scales);
    if constexpr (kVector) {
      if (first_column + lane * kLaneCodes < pitch) reinterpret_cast<uint32_t*>(row)[lane] = codes;
    } else {
#pragma unroll
      for (int k = 0; k < kLaneCodes; ++k) {
        const int column = lane_column<kVector>(lane, k);
        if (first_column + column < pitch) row[column] = static_cast<int8_t>(codes >> (8 * k));
      }
    }
  }
}

template <class T, bool kVector>
cudaError_t launch_pack_int8(const Int8PackArgs& a, const Context& context) {
  const int64_t warps = ceil_div(a.rows, kBatch) * ceil_div(a.size, kChunk);
  return launch_dependent(pack_int8_kernel<T, kVector>, grid_size(ceil_div(warps, kPackWarps)),
                          kPackThreads, 0, context, a);
}

}  // namespace bitgnn::cuda::int8
