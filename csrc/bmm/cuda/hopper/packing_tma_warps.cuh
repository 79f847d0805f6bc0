// Hopper product of contiguous float rows, binarised on the fly, with packed weights in shared
// memory; writes bits. The TMA keeps loading rows into each warp's own slots while the warps pack
// and multiply the previous ones. Bound by reading the float rows.
#pragma once

#include <algorithm>

#include "bmm/arguments.h"
#include "bmm/cuda/hopper/packing_tma_rows.cuh"
#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/shared_memory.h"

namespace bitgnn::cuda::bmm {

constexpr int kBulkSlots = 2;         // per warp
constexpr int kBulkBytes = 8 * 1024;  // approximate size of a slot

// Shared-memory layout of a block: slots, weights, column table, thresholds, packed rows,
// mbarriers. Each warp has its own slots, packed rows and mbarriers.
struct BulkPlan : BulkShape {
  int warps;

  __host__ __device__ int warp_bytes() const {
    return kBulkSlots * (slot_bytes() + 8) + kMmaRows * pitch * 4;
  }
  __host__ __device__ int64_t bytes() const {
    return int64_t{warps} * warp_bytes() + shared_bytes();
  }
};

// kSame: all columns are compared with zero. kShift: the rows are compared with thresholds.
template <bool kSame, bool kShift, int kVector>
__global__ void __launch_bounds__(kBulkMostWarps* kWarp, 1)
    bmm_packing_bulk_kernel(const PackArgs pack, const BmmArgs a, const BulkPlan plan) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int columns = plan.columns();
  auto* slots = reinterpret_cast<float*>(memory + warp * kBulkSlots * plan.slot_bytes());
  auto* weights = reinterpret_cast<uint32_t*>(memory + plan.warps * kBulkSlots * plan.slot_bytes());
  const AgreementTable table = agreement_table(weights + columns * plan.pitch, columns);
  auto* thresholds =
      reinterpret_cast<float*>(weights + columns * plan.pitch + AgreementTable::words(columns));
  auto* all_packed =
      reinterpret_cast<uint32_t*>(thresholds) + (kShift ? plan.steps * kBulkStep : 0);
  uint32_t* packed = all_packed + warp * kMmaRows * plan.pitch;
  auto* barriers = reinterpret_cast<uint64_t*>(all_packed + plan.warps * kMmaRows * plan.pitch);
  const uint32_t full = shared_address(barriers + warp * kBulkSlots);
  const int slot_floats = plan.slot_floats();

  let_next_start();
  // Tiles are dealt to blocks in turn, so that the last ones are spread evenly.
  const int64_t stride = static_cast<int64_t>(gridDim.x) * plan.warps;
  int64_t tile = static_cast<int64_t>(warp) * gridDim.x + blockIdx.x;
  int64_t next_row = tile * kMmaRows;  // to load next
  if (lane == 0) {
    for (int i = 0; i < kBulkSlots; ++i) barrier_init(full + i * 8, 1);
    barrier_init_fence();
  }
  __syncwarp();
  wait_for_previous();
  const auto bring = [&](int slot) {
    if (lane == 0)
      start_bulk(pack, plan, a.rows, next_row, slots + slot * slot_floats, full + slot * 8);
    next_row += plan.slot_rows;
    if (next_row % kMmaRows == 0) next_row += (stride - 1) * kMmaRows;
  };
  for (int i = 0; i < kBulkSlots; ++i) bring(i);

#pragma unroll 2
  for (int i = threadIdx.x; i < columns * plan.steps; i += blockDim.x) {
    BulkWeights own;
    own.fetch(a, plan, i);
    own.template store<kVector>(plan, i, weights);
  }
  set_agreements(table, a, columns, plan.steps * kBulkStep, static_cast<int>(blockDim.x), lane);
  if constexpr (kShift) {
    for (int c = threadIdx.x; c < plan.steps * kBulkStep; c += blockDim.x)
      thresholds[c] = c < plan.cols ? __ldg(pack.threshold + c) : 0.0f;
  }
  __syncthreads();

  const uint32_t last_mask = last_bulk_mask<kVector>(plan, lane);
  const BulkProduct product{table, column_fragments_address(weights, plan.pitch, lane),
                            static_cast<uint32_t>(plan.pitch) * 2 * kMmaColumns * 4,
                            agreement_start(a, 0, plan.steps * kBulkStep)};
  const uint32_t fragment = row_fragment_address(packed, plan.pitch, lane);
  int slot = 0, phase = 0;
  for (; tile < plan.tiles; tile += stride) {
    const int64_t first_row = tile * kMmaRows;
    for (int part = 0; part < kMmaRows && first_row + part < a.rows; part += plan.slot_rows) {
      barrier_wait(full + slot * 8, phase);
      const float* from = slots + slot * slot_floats + lane * kVector;
      for (int step = 0; step < plan.steps; ++step, from += kBulkStep) {
        const uint32_t mask = step + 1 < plan.steps ? (1u << kBulkBits) - 1u : last_mask;
        float limit[kBulkBits];
        if constexpr (kShift) load_limits<kVector>(limit, thresholds, step, lane);
        for (int r = 0; r < plan.slot_rows; r += kBulkRows)
          pack_bulk<kShift, kVector>(
              from + r * plan.cols, plan.cols, limit, mask,
              reinterpret_cast<uint8_t*>(packed + (part + r) * plan.pitch + step * kMmaWords) +
                  lane,
              plan.pitch * 4);
      }
      __syncwarp();
      bring(slot);
      slot ^= 1;
      if (slot == 0) phase ^= 1;
    }
#pragma unroll 1
    for (int pass = 0; pass < plan.passes; ++pass)
      multiply_bulk<kSame>(a, plan, product, fragment, first_row, pass, lane);
    __syncwarp();
  }
#endif
}

inline BulkPlan bulk_plan(const BmmArgs& args, const Context& context) {
  BulkPlan plan{bulk_shape(args, context), 0};
  plan.slot_rows = kBulkRows;
  while (plan.slot_rows < kMmaRows && 2 * plan.slot_bytes() <= kBulkBytes) plan.slot_rows *= 2;
  const int64_t fitting = (context.device.shared_bytes - plan.shared_bytes()) / plan.warp_bytes();
  plan.warps = static_cast<int>(std::clamp<int64_t>(fitting, 0, kBulkMostWarps));
  return plan;
}

template <bool kSame, bool kShift, int kVector>
cudaError_t launch_bmm_packing_bulk(const BmmArgs& args, const BulkPlan& plan,
                                    const Context& context) {
  const auto kernel = bmm_packing_bulk_kernel<kSame, kShift, kVector>;
  const cudaError_t status = grant_shared_memory(kernel, plan.bytes());
  if (status != cudaSuccess) return status;
  const int64_t blocks = std::min<int64_t>(plan.tiles, context.device.sm_count);
  return launch_dependent(kernel, grid_size(blocks), plan.warps * kWarp,
                          static_cast<size_t>(plan.bytes()), context, *args.pack, args, plan);
}

}  // namespace bitgnn::cuda::bmm
