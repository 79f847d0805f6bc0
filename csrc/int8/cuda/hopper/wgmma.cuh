// Hopper product of 8-bit rows: the weights of up to 256 outputs stay in shared memory while
// persistent blocks stream tiles of 64 rows through rings of stages of 128 features. Warpgroups
// take turns at the tiles: one multiplies while others store. Bound by reading the rows and writing
// float results, or, from codes to bits of many outputs, by the tensor cores as well.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "int8/cuda/hopper/finish.cuh"
#include "int8/cuda/hopper/producers.cuh"

namespace bitgnn::cuda::int8 {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <Int8Output kOutput, int kColumns, int kConsumers, bool kFloats>
__device__ __forceinline__ void consume(const WgmmaMemory<kColumns, kConsumers>& shared,
                                        const Int8BmmArgs& a, const WgmmaPlan& plan, int64_t column,
                                        int consumer) {
  constexpr uint64_t kChunkAdvance = kColumns * kSwizzleBytes >> 4;
  // Turns keep the tensor cores busy; short products are over before the next turn comes.
  constexpr bool kTurns = kConsumers > 1 && kColumns == 256;
  constexpr int kTurnThreads = 2 * kGroupThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) % kGroupThreads / kWarp;
  const int turn = 1 + consumer, next_turn = 1 + (consumer + 1) % kConsumers;
  // Of the lane's load_matrices() address in a swizzled stage.
  const int fragment_byte =
      (warp * kMmaRows + lane % kMmaRows) * kSwizzleBytes + (lane / kMmaRows ^ lane % 8) * 16;
  const uint64_t first_weights = wgmma_descriptor(shared_address(shared.weights));
  const BlockTiles tiles(plan);
  StageRing ring = shared.ring(consumer, plan);
  bool has_weights = false;
  for (int64_t tile = tiles.first + consumer * tiles.stride; tile < tiles.end;
       tile += kConsumers * tiles.stride) {
    const int64_t row = tile * kWgmmaRows + warp * kMmaRows;
    SumRows of;
    if constexpr (kOutput == Int8Output::kSumBits) of.load(a, row, lane);
    int32_t sum[kColumns / 2];
    start_sums<kOutput>(sum, shared.tail.columns, lane);
    if (kTurns && tile != tiles.first) group_sync(turn, kTurnThreads);
    unsigned char* stage = nullptr;
    uint32_t before = 0;
    uint64_t weights = first_weights;
#pragma unroll 1
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      if (!has_weights) barrier_wait(shared_address(shared.tail.weights + chunk), 0);
      ring.wait_full();
      stage = ring.stage();
      if constexpr (kFloats) {
        // Codes that threads wrote go through registers: making them visible to the tensor cores
        // would wait for all memory accesses in flight.
        uint32_t rows[kWgmmaSteps][4];
        if (chunk != 0) wgmma_wait<0>();
#pragma unroll
        for (int step = 0; step < kWgmmaSteps; ++step)
          load_matrices(shared_address(stage) + (fragment_byte ^ step * kMmaWords * 4),
                        rows[step][0], rows[step][1], rows[step][2], rows[step][3]);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kWgmmaSteps; ++step)
          wgmma_s8(sum, rows[step], weights + step * kWgmmaAdvance,
                   kOutput == Int8Output::kBits || chunk != 0 || step != 0);
        wgmma_commit();
        if (chunk + 1 < plan.chunks && lane == 0) barrier_arrive(ring.empty());
      } else {
        const uint64_t rows = wgmma_descriptor(shared_address(stage));
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kWgmmaSteps; ++step)
          wgmma_s8(sum, rows + step * kWgmmaAdvance, weights + step * kWgmmaAdvance,
                   kOutput == Int8Output::kBits || chunk != 0 || step != 0);
        wgmma_commit();
        if (chunk != 0) {
          wgmma_wait<1>();
          if (lane == 0) barrier_arrive(before);
        }
      }
      before = ring.empty();
      weights += kChunkAdvance;
      ring.advance();
    }
    has_weights = true;
    if (kTurns && tile + tiles.stride < tiles.end) group_arrive(next_turn, kTurnThreads);
    wgmma_wait<0>();
    // Without addends, the last stage is scratch memory for float results before it takes other
    // rows. They are read back from there, so they are in place by then.
    const bool keeps = kOutput == Int8Output::kFloat && !plan.staged;
    if (!keeps && lane == 0) barrier_arrive(before);
    finish_slab<kOutput>(shared, a, plan, stage + warp * kMmaRows * kSwizzleBytes, sum, row, column,
                         ring, of, lane);
    __syncwarp();
    if (keeps && lane == 0) barrier_arrive(before);
  }
}

// Changes the registers of every thread of a warpgroup.
template <int kBefore, int kAfter>
__device__ __forceinline__ void set_registers() {
  if constexpr (kAfter < kBefore)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kAfter));
  else
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kAfter));
}

#endif

// Warpgroups of a block, producers first, and the registers of their threads.
template <int kColumns, bool kFloats>
struct WgmmaGroups {
  static constexpr int kProducers = kFloats ? 2 : 1;
  static constexpr int kConsumers = kFloats ? 1 : kColumns > 128 ? 2 : 3;
  static constexpr int kThreads = (kProducers + kConsumers) * kGroupThreads;
  static constexpr int kRegisters = 65536 / kThreads / 8 * 8;  // of every thread at the start
  static constexpr int kProducerRegisters = !kFloats ? 40 : kColumns > 128 ? 144 : 168;
  static constexpr int kConsumerRegisters = kFloats           ? (kColumns > 128 ? 216 : 160)
                                            : kConsumers == 2 ? 232
                                                              : 152;
  static_assert(kProducers * kProducerRegisters + kConsumers * kConsumerRegisters <=
                    (kProducers + kConsumers) * kRegisters,
                "a block cannot have more registers than it starts with");
};

template <Int8Output kOutput, int kColumns, bool kFloats>
__global__ void __launch_bounds__(WgmmaGroups<kColumns, kFloats>::kThreads, 1)
    int8_wgmma_kernel(const __grid_constant__ Int8BmmArgs a,
                      const __grid_constant__ Int8PackArgs pack,
                      const __grid_constant__ WgmmaMaps maps,
                      const __grid_constant__ WgmmaPlan plan) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Groups = WgmmaGroups<kColumns, kFloats>;
  extern __shared__ unsigned char raw[];
  const int column_tile = static_cast<int>(blockIdx.x) % plan.column_tiles;
  const int64_t column = static_cast<int64_t>(column_tile) * kColumns;
  const auto columns = static_cast<int>(min(a.out_features - column, int64_t{kColumns}));
  const int slots = plan.staged ? (columns + plan.slot_columns - 1) / plan.slot_columns : 0;
  const WgmmaMemory<kColumns, Groups::kConsumers> shared(raw, plan, slots);
  const int thread = static_cast<int>(threadIdx.x);
  let_next_start();
  if (thread == 0) {
    prefetch_map(maps.weights);
    if constexpr (!kFloats) prefetch_map(maps.rows);
    constexpr int kWriters = kFloats ? Groups::kProducers * kGroupWarps : 1;
    for (int s = 0; s < Groups::kConsumers * plan.stages; ++s) {
      barrier_init(shared_address(shared.tail.full + s), kWriters);
      barrier_init(shared_address(shared.tail.empty + s), kGroupWarps);
    }
    for (int chunk = 0; chunk < plan.chunks; ++chunk)
      barrier_init(shared_address(shared.tail.weights + chunk), 1);
    barrier_init_fence();
  }
  wait_for_previous();
  if constexpr (kFloats) {
    if (thread == 0) {
      for (int chunk = 0; chunk < plan.chunks; ++chunk)
        copy_weights(shared, maps.weights, chunk, column);
    }
    for (int i = thread; i < plan.chunks * kChunk; i += Groups::kThreads) {
      shared.centres[i] = i < a.size ? __ldg(pack.centre + i) : 0.0f;
      shared.centres[plan.chunks * kChunk + i] = i < a.size ? __ldg(pack.inverse_step + i) : 0.0f;
    }
  }
  load_columns<kOutput>(shared.tail.columns, a, column, thread, Groups::kThreads);
  if constexpr (kOutput == Int8Output::kBits) {
    __syncthreads();
    set_sum_starts(shared.tail.columns, thread);
  }
  const auto start = [] { __syncthreads(); };

  const int group = thread / kGroupThreads, lane = thread % kWarp;
  if (group < Groups::kProducers) {
    set_registers<Groups::kRegisters, Groups::kProducerRegisters>();
    if constexpr (kFloats) {
      const int warp = thread / kWarp;
      if (plan.buffered) {
        with_float_type(pack.type, [&](auto zero) {
          quantise_buffered<decltype(zero)>(shared, plan, pack, warp, lane, start);
        });
      } else {
        start();
        with_float_type(pack.type, [&](auto zero) {
          using T = decltype(zero);
          plan.vectors ? quantise_rows<T, true>(shared, plan, pack, warp, lane)
                       : quantise_rows<T, false>(shared, plan, pack, warp, lane);
        });
      }
    } else {
      start();
      const int consumer = thread / kWarp;
      if (lane == 0 && consumer < Groups::kConsumers)
        copy_rows(shared, plan, maps, column, consumer);
    }
  } else {
    set_registers<Groups::kRegisters, Groups::kConsumerRegisters>();
    start();
    consume<kOutput, kColumns, Groups::kConsumers, kFloats>(shared, a, plan, column,
                                                            group - Groups::kProducers);
  }
#endif
}

}  // namespace bitgnn::cuda::int8
