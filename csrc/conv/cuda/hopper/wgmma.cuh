// Hopper's implicit GEMM of a binary convolution: a tile's pixels are loaded once, every tap
// multiplies them from a shifted start, and weights are streamed by bulk copies or stay resident.
//
// dot = K - 2 |a| - 2 |b| + 4 popc(a & b), with K, |a| and |b| over the taps inside the image:
// pixels outside are zeros, |a| comes from popcounts of the pixels, and K - 2 |b| from a table
// indexed by the class of border pixels. A tile is 256 positions by 64 or 128 outputs, with two
// warpgroups of 128 positions each; one warp starts the copies of weights, seven warps load pixels
// and build the tables.
#pragma once

#include "conv/cuda/hopper/wgmma_epilogue.cuh"
#include "conv/cuda/hopper/wgmma_helpers.cuh"
#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/hopper/async_copy.cuh"
#include "core/cuda/hopper/ring.cuh"
#include "core/cuda/hopper/wgmma_b1.cuh"

namespace bitgnn::cuda::conv {

constexpr int kConvFirstConsumer = kWarp + kConvHelpers;
constexpr int kConvThreads = kConvFirstConsumer + 256;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <int kColumns, int kChunk>
__device__ __forceinline__ void copy_conv_weights(ConvShared& shared, unsigned char* stages,
                                                  const CUtensorMap& w_map, const ConvPlan& plan) {
  constexpr int kStageBytes = kColumns * kConvStageRowBytes;
  const auto copy = [&](int stage, int block, int column_tile) {
    const uint32_t full = shared_address(&shared.full[stage]);
    barrier_expect(full, kStageBytes);
    copy_weights_tile(shared_address(stages + stage * kStageBytes), w_map, block * kSwizzleWords,
                      column_tile * (kColumns / (4 * kChunk)), full);
  };
  ConvWalk walk(plan);
  if (plan.groups > 0) {
    if (walk.left > 0)
      for (int block = 0; block < plan.blocks; ++block) copy(block, block, walk.column_tile);
    return;
  }
  RingCursor turn;
  for (; walk.left > 0; walk.advance(plan)) {
    for (int block = 0; block < plan.blocks; ++block) {
      barrier_wait(shared_address(&shared.empty[turn.at]), turn.phase ^ 1);
      copy(turn.at, block, walk.column_tile);
      turn.advance(plan.stages);
    }
  }
}

// Multiplies consecutive steps from one stage, for 64 rows and for the 64 after them.
template <int kColumns, int kSteps>
__device__ __forceinline__ void multiply_conv_stage(int32_t (&sum)[2][kColumns / 2],
                                                    const ConvPlan& plan, int step, uint32_t from,
                                                    uint32_t stage) {
  const uint64_t weights = wgmma_descriptor(stage);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const uint32_t low = plan.step[step + i] + from;
    const uint64_t w = weights + i * kWgmmaAdvance;
    wgmma_and_popc(sum[0], plain_descriptor(low), w, i != 0 || step != 0);
    wgmma_and_popc(sum[1], plain_descriptor(low + kWgmmaRows), w, i != 0 || step != 0);
  }
  wgmma_commit();
}

template <int kColumns, ConvOutput kOutput>
__device__ __forceinline__ void multiply_conv_tiles(ConvShared& shared, unsigned char* raw,
                                                    const ConvAddArgs& a, const ConvPlan& plan,
                                                    int consumer) {
  constexpr int kStageBytes = kColumns * kConvStageRowBytes;
  const int thread = threadIdx.x % 128;
  const bool streams = plan.groups == 0;
  const uint32_t slots = (shared_address(raw + plan.slots_at) >> 4) + consumer * 2 * kWgmmaRows;
  const uint32_t stages = shared_address(raw);
  const int whole = plan.steps / kWgmmaSteps;
  const int rest = plan.steps % kWgmmaSteps;
  RingCursor stage, slot, info, rows;
  bool new_tile = true;
  for (ConvWalk walk(plan); walk.left > 0;) {
    if (new_tile) {
      barrier_wait(shared_address(&shared.slot_full[slot.at]), slot.phase);
      wgmma_write_fence();  // makes the helpers' copies visible to wgmma
    }
    const uint32_t from = slots + slot.at * (plan.slot_bytes >> 4);
    int32_t sum[2][kColumns / 2];
    if (!streams) stage.at = 0;
    int before = -1;
    const auto finish_stage = [&] {
      wgmma_wait<1>();
      if (streams && before >= 0 && thread == 0)
        barrier_arrive(shared_address(&shared.empty[before]));
      before = stage.at;
      if (streams) {
        stage.advance(plan.stages);
      } else {
        ++stage.at;
      }
    };
    for (int block = 0; block < whole; ++block) {
      barrier_wait(shared_address(&shared.full[stage.at]), stage.phase);
      multiply_conv_stage<kColumns, kWgmmaSteps>(sum, plan, block * kWgmmaSteps, from,
                                                 stages + stage.at * kStageBytes);
      finish_stage();
    }
    if (rest > 0) {
      barrier_wait(shared_address(&shared.full[stage.at]), stage.phase);
      const uint32_t last = stages + stage.at * kStageBytes;
      const int step = whole * kWgmmaSteps;
      if (rest == 1) {
        multiply_conv_stage<kColumns, 1>(sum, plan, step, from, last);
      } else if (rest == 2) {
        multiply_conv_stage<kColumns, 2>(sum, plan, step, from, last);
      } else {
        multiply_conv_stage<kColumns, 3>(sum, plan, step, from, last);
      }
      finish_stage();
    }
    wgmma_wait<0>();
    const int tile = walk.tile;
    const int column = walk.column_tile * kColumns;
    walk.advance(plan);
    new_tile = walk.left > 0 && walk.tile != tile;
    if (thread == 0) {
      if (streams) barrier_arrive(shared_address(&shared.empty[before]));
      if (new_tile) barrier_arrive(shared_address(&shared.slot_empty[slot.at]));
    }
    if (new_tile) slot.advance(plan.slots);

    barrier_wait(shared_address(&shared.info_full[info.at]), info.phase);
    store_conv_tile<kColumns, kOutput>(shared, raw, a, plan, sum, consumer, column, rows.at,
                                       streams ? info.at : 0);
    __syncwarp();
    if (thread % kWarp == 0) barrier_arrive(shared_address(&shared.info_empty[info.at]));
    info.advance(2);
    if (new_tile) rows.advance(2);
  }
}

#endif

template <int kColumns, ConvOutput kOutput>
__global__ void __launch_bounds__(kConvThreads, 1)
    conv_wgmma_kernel(const __grid_constant__ ConvAddArgs a,
                      const __grid_constant__ CUtensorMap w_map,
                      const __grid_constant__ ConvPlan plan) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kHelperRegisters = 56;
  constexpr int kConsumerRegisters = 200;
  extern __shared__ unsigned char unaligned[];
  // Not rounded up as an integer, so that the compiler still sees a shared-memory address.
  unsigned char* raw = unaligned + (-shared_address(unaligned) & 1023);
  auto& shared = *reinterpret_cast<ConvShared*>(raw + plan.fixed_at);
  let_next_start();
  if (threadIdx.x == 0) {
    prefetch_map(w_map);
    for (int i = 0; i < plan.stages; ++i) {
      barrier_init(shared_address(&shared.full[i]), 1);
      barrier_init(shared_address(&shared.empty[i]), 2);
    }
    for (int i = 0; i < plan.slots; ++i) {
      barrier_init(shared_address(&shared.slot_full[i]), kConvHelpers);
      barrier_init(shared_address(&shared.slot_empty[i]), 2);
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init(shared_address(&shared.info_full[i]), kConvHelpers);
      barrier_init(shared_address(&shared.info_empty[i]), 8);
    }
    barrier_init_fence();
  }
  __syncthreads();
  wait_for_previous();

  if (threadIdx.x < kConvFirstConsumer) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kHelperRegisters));
    if (threadIdx.x == 0)
      copy_conv_weights<kColumns, conv_chunk(kColumns, kOutput)>(shared, raw, w_map, plan);
    if (threadIdx.x >= kWarp)
      help_conv<kColumns, kOutput>(shared, raw, a, plan, static_cast<int>(threadIdx.x) - kWarp);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kConsumerRegisters));
    multiply_conv_tiles<kColumns, kOutput>(
        shared, raw, a, plan, static_cast<int>(threadIdx.x - kConvFirstConsumer) / 128);
  }
#endif
}

}  // namespace bitgnn::cuda::conv
