// Hopper product of many float rows, binarised on the fly, with many packed weights.
// Warp-specialised, one block per multiprocessor: some warps load weights and pack the next rows
// while two warpgroups multiply the previous ones.
#pragma once

#include <algorithm>

#include "bmm/cuda/hopper/packing_wgmma_producers.cuh"
#include "bmm/cuda/output.cuh"
#include "core/cuda/hopper/tensor_map.h"
#include "core/cuda/shared_memory.h"

namespace bitgnn::cuda::bmm {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

using RingSums = int32_t[kRingColumns / 2];

template <BmmOutput kOutput, bool kScale>
__device__ __forceinline__ void store_ring(const BmmArgs& a, const int32_t* counts,
                                           const float* scales,
                                           const ColumnTable<kRingColumns>& table,
                                           const RingSums& sum, int32_t* staged, int64_t row,
                                           int64_t column, int lane) {
  SlabRows rows;
  set_row_terms<kOutput>(rows, a, counts[fragment_group(lane)], counts[fragment_group(lane) + 8]);
  if constexpr (kScale) {
    rows.scale[0] = scales[fragment_group(lane)];
    rows.scale[1] = scales[fragment_group(lane) + 8];
  } else if constexpr (needs_scales(kOutput)) {
    load_row_scales(rows, a, row, lane);
  }
  store_slab<kOutput, kRingColumns>(slab_target<kOutput>(a, row, column), table, rows, sum, staged,
                                    lane);
}

template <bool kScale>
__device__ __forceinline__ void multiply_ring(RingShared& shared, const uint32_t* words,
                                              int32_t* staged, const BmmArgs& a,
                                              const RingPlan& plan, int thread) {
  const int lane = thread % kWarp;
  const int warp = thread / kWarp;
  const int group_row = thread / 128 * kWgmmaRows;
  const bool leads = thread % 128 == 0;
  staged += warp * kStagedWords;
  RingCursor rows_turn, table_turn, turn;
  for (int64_t tile = blockIdx.x; tile < plan.tiles; tile += gridDim.x) {
    const int64_t row = tile * kRingRows + warp * kMmaRows;
    const int32_t* counts = shared.counts[rows_turn.at] + warp * kMmaRows;
    const float* scales = shared.scales[rows_turn.at] + warp * kMmaRows;
    const uint32_t* rows =
        words + rows_turn.at * plan.blocks * kRingBlockWords + group_row * kRingWords;
    barrier_wait(shared_address(&shared.rows_full[rows_turn.at]), rows_turn.phase);
    for (int pass = static_cast<int>(blockIdx.y); pass < plan.passes; pass += gridDim.y) {
      RingSums sum;
      int before = 0;
      for (int block = 0; block < plan.blocks; ++block) {
        barrier_wait(shared_address(&shared.full[turn.at]), turn.phase);
        wgmma_write_fence();
        const uint64_t x = wgmma_descriptor(shared_address(rows + block * kRingBlockWords));
        const uint64_t w = wgmma_descriptor(shared_address(shared.stages[turn.at]));
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kWgmmaSteps; ++step)
          wgmma_and_popc(sum, x + step * kWgmmaAdvance, w + step * kWgmmaAdvance,
                         block != 0 || step != 0);
        wgmma_commit();
        if (block != 0) {
          wgmma_wait<1>();
          if (leads) barrier_arrive(shared_address(&shared.empty[before]));
        }
        before = turn.at;
        turn.advance(kRingStages);
      }
      barrier_wait(shared_address(&shared.table_full[table_turn.at]), table_turn.phase);
      wgmma_wait<0>();
      if (leads) barrier_arrive(shared_address(&shared.empty[before]));
      const int64_t column = int64_t{pass} * kRingColumns;
      const auto& table = shared.tables[table_turn.at];
      with_slab_output<kScale>(plan.output, [&](auto output) {
        store_ring<decltype(output)::value, kScale>(a, counts, scales, table, sum, staged, row,
                                                    column, lane);
      });
      arrive_warp(shared.table_empty[table_turn.at], lane);
      table_turn.advance(2);
    }
    arrive_warp(shared.rows_empty[rows_turn.at], lane);
    rows_turn.advance(plan.buffers);
  }
}

#endif

template <bool kScale, class Source>
__global__ void __launch_bounds__(kRingThreads, 1)
    bmm_packing_ring_kernel(const __grid_constant__ Source source,
                            const __grid_constant__ PackArgs pack,
                            const __grid_constant__ BmmArgs a,
                            const __grid_constant__ CUtensorMap w_map,
                            const __grid_constant__ RingPlan plan) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  // Registers per thread of each role, in total no more than the block starts with.
  constexpr int kCopierRegisters = 56;
  constexpr int kPackerRegisters = 80;
  constexpr int kConsumerRegisters = 128;
  extern __shared__ unsigned char raw[];
  auto& shared =
      *reinterpret_cast<RingShared*>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~uintptr_t{1023});
  auto* words = reinterpret_cast<uint32_t*>(&shared + 1);
  auto* staged = reinterpret_cast<int32_t*>(words + plan.buffers * plan.blocks * kRingBlockWords);
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    constexpr int kCopyingWarps = kRingCopiers / kWarp;
    constexpr int kConsumingWarps = kRingConsumers * 128 / kWarp;
    for (int i = 0; i < kRingStages; ++i) {
      barrier_init(shared_address(&shared.full[i]), plan.bulk ? 1 : kRingCopiers);
      barrier_init(shared_address(&shared.empty[i]), kRingConsumers + kCopyingWarps);
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init(shared_address(&shared.table_full[i]), kCopyingWarps);
      barrier_init(shared_address(&shared.table_empty[i]), kConsumingWarps);
    }
    for (int i = 0; i < kRingBuffers; ++i) {
      barrier_init(shared_address(&shared.rows_full[i]), kRingPackers / kWarp);
      barrier_init(shared_address(&shared.rows_empty[i]), kConsumingWarps);
    }
    barrier_init_fence();
  }
  __syncthreads();
  if (thread < kRingCopiers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kCopierRegisters));
    const int64_t tiles = (plan.tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;
    const int64_t passes = (plan.passes - blockIdx.y + gridDim.y - 1) / gridDim.y;
    const int64_t stages = tiles * passes * plan.blocks;
    if (plan.bulk)
      copy_weights<true>(shared, a, w_map, plan, stages, thread);
    else
      copy_weights<false>(shared, a, w_map, plan, stages, thread);
  } else if (thread < kRingCopiers + kRingPackers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kPackerRegisters));
    pack_ring_rows<kScale>(shared, words, source, pack, a, plan, thread - kRingCopiers);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kConsumerRegisters));
    multiply_ring<kScale>(shared, words, staged, a, plan, thread - kRingCopiers - kRingPackers);
  }
#endif
}

// Shared memory of a block in bytes, including alignment.
inline int64_t ring_bytes(const RingPlan& plan) {
  const int64_t staged = writes_bits(plan.output) ? 0 : kRingRows / kMmaRows * kStagedWords;
  return 1024 + static_cast<int64_t>(sizeof(RingShared)) +
         (int64_t{plan.buffers} * plan.blocks * kRingBlockWords + staged) * 4;
}

inline RingPlan ring_plan(const BmmArgs& args, const Context& context) {
  RingPlan plan{};
  plan.words = static_cast<int>(words_for(args.size));
  plan.blocks = static_cast<int>(ceil_div(plan.words, kRingWords));
  plan.tiles = ceil_div(args.rows, kRingRows);
  plan.passes = static_cast<int>(ceil_div(args.out_features, kRingColumns));
  plan.vectors = plan.words % 4 == 0 && is_aligned(args.w);
  plan.bulk = plan.vectors && plan.words >= kRingWords && args.out_features >= kRingColumns &&
              args.out_features <= INT32_MAX - kRingColumns;
  plan.output = slab_output(args);
  plan.buffers = kRingBuffers;
  if (ring_bytes(plan) > context.device.shared_bytes) plan.buffers = 1;
  return plan;
}

template <bool kScale, class Source>
cudaError_t launch_bmm_packing_ring(const Source& source, const BmmArgs& args,
                                    const Context& context) {
  const RingPlan plan = ring_plan(args, context);
  const auto kernel = bmm_packing_ring_kernel<kScale, Source>;
  const int64_t bytes = ring_bytes(plan);
  cudaError_t error = grant_shared_memory(kernel, bytes);
  if (error != cudaSuccess) return error;
  CUtensorMap w_map{};
  if (plan.bulk) error = encode_rows(w_map, args.w, args.out_features, plan.words, kRingColumns);
  if (error != cudaSuccess) return error;
  const int64_t blocks = std::min<int64_t>(plan.tiles, context.device.sm_count);
  // With few rows, several blocks pack the same ones, each for its share of the columns.
  const int64_t splits = std::clamp<int64_t>(context.device.sm_count / blocks, 1, plan.passes);
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(splits));
  kernel<<<grid, kRingThreads, static_cast<size_t>(bytes), context.stream>>>(source, *args.pack,
                                                                             args, w_map, plan);
  return cudaGetLastError();
}

}  // namespace bitgnn::cuda::bmm
