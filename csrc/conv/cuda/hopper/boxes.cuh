// Hopper's binary convolution on boxes of pixels: one tensor copy loads a tile's pixels together
// with the zeros around the image, every tap multiplies them from a shifted start, and the weights
// of 128 outputs stay in shared memory.
//
// dot = K - 2 |a| - 2 |b| + 4 popc(a & b), with K, |a| and |b| over the taps inside the image. |a|
// is the product with a column of ones, so it ends up in the registers of the lane that needs it; a
// table indexed by the class of border pixels holds K - 2 |b|. A warpgroup multiplies a unit of 64
// positions at a time and runs its epilogue while others multiply. Addends and sums also move by
// tensor copies. The kernel for bits uses few registers, so that the next kernel's blocks, which
// start before this one has finished, can be resident beside it and load their weights and terms.
#pragma once

#include "conv/cuda/hopper/boxes_finish.cuh"
#include "conv/cuda/hopper/boxes_ring.cuh"
#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/hopper/ring.cuh"
#include "core/cuda/hopper/wgmma_b1.cuh"

namespace bitgnn::cuda::conv {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <ConvOutput kOutput>
__device__ __forceinline__ void start_weights(BoxShared& shared, unsigned char* raw,
                                              const CUtensorMap& map, const ConvBoxPlan& plan,
                                              int column_tile) {
  constexpr bool kBits = kOutput == ConvOutput::kBits;
  const uint32_t full = shared_address(&shared.weights);
  const int words = column_tile * (kBoxColumns / 32);
  barrier_expect(full, plan.stages * kBoxColumns * kConvStageRowBytes);
  for (int stage = 0; stage < plan.stages; ++stage)
    copy_box(shared_address(raw + stage * kBoxStageBytes), map,
             {stage * kSwizzleWords, 0, kBits ? words : 0, 0, kBits ? 0 : words}, full);
}

__device__ __forceinline__ void start_boxes(BoxShared& shared, unsigned char* raw,
                                            const CUtensorMap& map, const ConvBoxPlan& plan,
                                            const BoxWalk& walk, int slot) {
  const uint32_t full = shared_address(&shared.slot_full[slot]);
  barrier_expect(full, plan.phases * plan.box_bytes);
  uint32_t to = shared_address(raw + plan.slots_at + slot * plan.slot_bytes);
  for (int i = 0; i < plan.phases; ++i, to += plan.phase_bytes) {
    const int phase_row = plan.phase[i] / plan.stride_width;
    const int x = plan.phase[i] - phase_row * plan.stride_width - plan.padding_left;
    const int y = walk.line * plan.stride_height + phase_row - plan.padding_top;
    if (plan.long_rows)
      copy_box(to, map, {2 * x, y, walk.image, 0, 0}, full);
    else
      copy_box(to, map, {0, x, y, walk.image, 0}, full);
  }
}

template <int kSteps>
__device__ __forceinline__ void multiply_steps(BoxSums& sum, const ConvBoxPlan& plan, int first,
                                               uint32_t from, uint64_t weights) {
#pragma unroll
  for (int i = 0; i < kSteps; ++i)
    wgmma_and_popc(
        sum, plain_descriptor(plan.step[first + i] + from),
        weights + i / kWgmmaSteps * (kBoxStageBytes >> 4) + i % kWgmmaSteps * kWgmmaAdvance,
        first != 0 || i != 0);
}

// Unrolled: in a loop the compiler makes every product wait for the previous one.
__device__ __forceinline__ void multiply_unit(BoxSums& sum, const ConvBoxPlan& plan, uint32_t from,
                                              uint64_t weights) {
  if (plan.steps == 5) return multiply_steps<5>(sum, plan, 0, from, weights);
  if (plan.steps == 9) return multiply_steps<9>(sum, plan, 0, from, weights);
  if (plan.steps == 18) return multiply_steps<18>(sum, plan, 0, from, weights);
#pragma unroll 1
  for (int step = 0; step < plan.steps; ++step)
    multiply_steps<1>(
        sum, plan, step, from,
        weights + step / kWgmmaSteps * (kBoxStageBytes >> 4) + step % kWgmmaSteps * kWgmmaAdvance);
}

template <int kGroups, ConvOutput kOutput>
__device__ __forceinline__ void multiply_boxes(BoxShared& shared, unsigned char* raw,
                                               const ConvAddArgs& args, const BoxMaps& maps,
                                               const ConvBoxPlan& plan, BoxWalk walk,
                                               BoxWalk ahead) {
  constexpr bool kSums = kOutput == ConvOutput::kSums;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int group = static_cast<int>(threadIdx.x) / 128;
  const uint32_t slots = shared_address(raw + plan.slots_at) >> 4;
  const uint64_t weights = wgmma_descriptor(shared_address(raw));
  const unsigned char* terms = raw + plan.terms_at;
  const BoxLane lane(plan, thread);
  const int units = plan.tile_units;
  BoxSumsRing<kGroups> ring(shared, raw, maps, args, plan, walk, group);
  if constexpr (kSums) {
    if (thread == 0) ring.start();
    __syncwarp();
  }
  RingCursor slot, refill;
  int unit = group, done = 0;
  barrier_wait(shared_address(&shared.weights), 0);
  for (; walk.tile < walk.last; walk.advance(plan)) {
    barrier_wait(shared_address(&shared.slot_full[slot.at]), slot.phase);
    // A group without a unit in this tile must not release the slot while one of its warps is a
    // round behind.
    if (unit >= units) group_sync(1 + group, 128);
    if (unit >= units && thread == 0) barrier_arrive(shared_address(&shared.slot_empty[slot.at]));
    for (; unit < units; unit += kGroups) {
      BoxUnit at = shared.units[unit];
      const uint32_t from = slots + slot.at * (plan.slot_bytes >> 4) + at.start;
      BoxSums sum;
      wgmma_fence();
      multiply_unit(sum, plan, from, weights);
      wgmma_commit();
      at.image += walk.image;
      at.y += walk.line;
      const BoxRow row[2] = {box_row(plan, at, lane, 0), box_row(plan, at, lane, 1)};
      wgmma_wait<0>();
      if (unit + kGroups >= units && thread == 0)
        barrier_arrive(shared_address(&shared.slot_empty[slot.at]));
      if constexpr (kSums) {
        add_box_sums(args.conv, shared.turned, terms, ring.wait(), ring.parts(), sum, row, lane,
                     plan, walk.column_tile);
        wgmma_write_fence();  // before the tensor copies read the sums
        group_sync(1 + group, 128);
        if (thread == 0) ring.store(at);
        __syncwarp();
        ring.advance();
      } else {
        store_box_bits(args.conv, shared.turned, terms, sum, row, lane, walk.column_tile);
      }
    }
    unit -= units;
    slot.advance(plan.slots);
    // Refills the previous slot, if there are several: a group hardly ever still needs it.
    const bool late = plan.slots > 1;
    if (threadIdx.x == 0 && done >= (late ? 1 : 0) && ahead.tile < ahead.last) {
      barrier_wait(shared_address(&shared.slot_empty[refill.at]), refill.phase);
      start_boxes(shared, raw, maps.pixels, plan, ahead, refill.at);
      ahead.advance(plan);
      refill.advance(plan.slots);
    }
    __syncwarp();
    ++done;
  }
  if (kSums && thread == 0) store_wait_read<0>();
}

#endif

template <int kGroups, int kBlocks, ConvOutput kOutput>
__global__ void __launch_bounds__(kGroups * 128, kBlocks)
    conv_box_kernel(const __grid_constant__ ConvAddArgs args, const __grid_constant__ BoxMaps maps,
                    const __grid_constant__ ConvBoxPlan plan) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kThreads = kGroups * 128;
  extern __shared__ unsigned char unaligned[];
  unsigned char* raw = unaligned + (-shared_address(unaligned) & (kBoxAlignment - 1));
  auto& shared = *reinterpret_cast<BoxShared*>(raw + plan.shared_at);
  const int thread = static_cast<int>(threadIdx.x);
  const BoxWalk walk(plan);
  BoxWalk ahead = walk;
  let_next_start();
  if (thread == 0) {
    prefetch_map(maps.weights);
    prefetch_map(maps.pixels);
    barrier_init(shared_address(&shared.weights), 1);
    for (int i = 0; i < kBoxMostSlots; ++i) {
      barrier_init(shared_address(&shared.slot_full[i]), 1);
      barrier_init(shared_address(&shared.slot_empty[i]), kGroups);
    }
    if constexpr (kOutput == ConvOutput::kSums)
      for (int i = 0; i < kGroups * kBoxMostBuffers; ++i)
        barrier_init(shared_address(&shared.addends[0][i]), 1);
    barrier_init_fence();
  }
  const auto start = [&] {
    wait_for_previous();
    if (thread == 0) {
      for (int slot = 0; slot < plan.slots; ++slot, ahead.advance(plan))
        if (ahead.tile < ahead.last) start_boxes(shared, raw, maps.pixels, plan, ahead, slot);
    }
  };
  if (!plan.prefetches) start();
  if (thread == 0) start_weights<kOutput>(shared, raw, maps.weights, plan, walk.column_tile);
  make_units(shared.units, plan, thread);
  set_ones(raw, plan, thread, kThreads);
  make_box_terms<kOutput>(reinterpret_cast<int32_t*>(raw + plan.terms_at), shared.turned, args.conv,
                          plan, walk.column_tile, thread, kThreads);
  wgmma_write_fence();
  __syncthreads();
  if (plan.prefetches) start();
  multiply_boxes<kGroups, kOutput>(shared, raw, args, maps, plan, walk, ahead);
#endif
}

}  // namespace bitgnn::cuda::conv
