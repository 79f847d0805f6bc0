// Hopper product of packed rows: a producer thread streams tiles with bulk copies through a ring of
// stages, two warpgroups multiply them with wgmma b1, and blocks are persistent over many tiles.
// Sharing copies in clusters (multicast) was measured and gains nothing: L2 keeps up.
#pragma once

#include "bmm/cuda/epilogue.cuh"
#include "bmm/cuda/output.cuh"
#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/hopper/async_copy.cuh"
#include "core/cuda/hopper/ring.cuh"
#include "core/cuda/hopper/wgmma_b1.cuh"

namespace bitgnn::cuda::bmm {

constexpr int kWgmmaConsumers = 2;
constexpr int kWgmmaStages = 4;
constexpr int kWgmmaTileRows = kWgmmaConsumers * kWgmmaRows;
constexpr int kWgmmaThreads = (kWgmmaConsumers + 1) * 128;
constexpr int kWgmmaRowBytes = kWgmmaTileRows * kSwizzleBytes;
constexpr int kWgmmaStageBytes = kWgmmaRowBytes + kWgmmaColumns * kSwizzleBytes;

struct WgmmaShared {
  alignas(1024) unsigned char stages[kWgmmaStages][kWgmmaStageBytes];
  ColumnTable<kWgmmaColumns> columns[kWgmmaConsumers];
  alignas(16) int32_t staged[kWgmmaConsumers * 4][kStagedWords];
  uint64_t full[kWgmmaStages];
  uint64_t empty[kWgmmaStages];
};

struct WgmmaPlan {
  int blocks;  // stages along the words of a row
  int row_tiles;
  int column_tiles;
  const int32_t* row_counts;
  const int32_t* column_counts;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ void produce(WgmmaShared& shared, const CUtensorMap& x_map,
                                        const CUtensorMap& w_map, const WgmmaPlan& plan) {
  RingCursor ring;
  const int tiles = plan.row_tiles * plan.column_tiles;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    int row_tile, column_tile;
    locate_tile(tile, plan.row_tiles, plan.column_tiles, row_tile, column_tile);
    for (int block = 0; block < plan.blocks; ++block) {
      barrier_wait(shared_address(&shared.empty[ring.at]), ring.phase ^ 1);
      const uint32_t full = shared_address(&shared.full[ring.at]);
      const uint32_t stage = shared_address(shared.stages[ring.at]);
      barrier_expect(full, kWgmmaStageBytes);
      copy_tile(stage, x_map, block * kSwizzleWords, row_tile * kWgmmaTileRows, full);
      copy_tile(stage + kWgmmaRowBytes, w_map, block * kSwizzleWords, column_tile * kWgmmaColumns,
                full);
      ring.advance(kWgmmaStages);
    }
  }
}

// Epilogue data that a thread loads while the tensor cores work: two columns of the table and the
// popcounts of its rows.
struct WgmmaLoads {
  ColumnEntry column[2];
  int32_t column_count[2];
  int32_t row_count[2];
};

template <BmmOutput kOutput>
__device__ __forceinline__ void load_epilogue(WgmmaLoads& to, SlabRows& rows, const BmmArgs& a,
                                              const WgmmaPlan& plan, int64_t row, int64_t column,
                                              int thread) {
  const int lane = thread % kWarp;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int64_t at_column = column + thread + i * 128;
    to.column[i] = load_column<kOutput>(a, at_column);
    to.column_count[i] = at_column < a.out_features ? plan.column_counts[at_column] : 0;
    const int64_t at_row = row + fragment_group(lane) + i * 8;
    to.row_count[i] = at_row < a.rows ? plan.row_counts[at_row] : 0;
  }
  if constexpr (needs_scales(kOutput)) load_row_scales(rows, a, row, lane);
}

template <BmmOutput kOutput>
__device__ __forceinline__ void consume(WgmmaShared& shared, const BmmArgs& a,
                                        const WgmmaPlan& plan, int consumer) {
  const int thread = threadIdx.x % 128;
  const int warp = thread / kWarp;
  const int lane = thread % kWarp;
  const int group_barrier = 1 + consumer;
  ColumnTable<kWgmmaColumns>& table = shared.columns[consumer];

  RingCursor ring;
  const int tiles = plan.row_tiles * plan.column_tiles;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    int row_tile, column_tile;
    locate_tile(tile, plan.row_tiles, plan.column_tiles, row_tile, column_tile);
    const int64_t row =
        static_cast<int64_t>(row_tile) * kWgmmaTileRows + consumer * kWgmmaRows + warp * kMmaRows;
    const int64_t column = static_cast<int64_t>(column_tile) * kWgmmaColumns;

    int32_t sum[128];
    WgmmaLoads loads;
    SlabRows rows;
    int before = 0;
    for (int block = 0; block < plan.blocks; ++block) {
      barrier_wait(shared_address(&shared.full[ring.at]), ring.phase);
      const uint32_t stage = shared_address(shared.stages[ring.at]);
      const uint64_t x = wgmma_descriptor(stage + consumer * kWgmmaRows * kSwizzleBytes);
      const uint64_t w = wgmma_descriptor(stage + kWgmmaRowBytes);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kWgmmaSteps; ++step)
        wgmma_and_popc(sum, x + step * kWgmmaAdvance, w + step * kWgmmaAdvance,
                       block != 0 || step != 0);
      wgmma_commit();
      if (block == 0) {
        load_epilogue<kOutput>(loads, rows, a, plan, row, column, thread);
      } else {
        wgmma_wait<1>();
        if (thread == 0) barrier_arrive(shared_address(&shared.empty[before]));
      }
      before = ring.at;
      ring.advance(kWgmmaStages);
    }

    group_sync(group_barrier, 128);  // the previous tile is stored
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      share_column<kOutput>(table, thread + i * 128, loads.column[i]);
      table.term[thread + i * 128] = column_term<kOutput>(loads.column_count[i]);
    }
    set_row_terms<kOutput>(rows, a, loads.row_count[0], loads.row_count[1]);
    group_sync(group_barrier, 128);
    wgmma_wait<0>();
    if (thread == 0) barrier_arrive(shared_address(&shared.empty[before]));
    store_slab<kOutput, kWgmmaColumns>(slab_target<kOutput>(a, row, column), table, rows, sum,
                                       shared.staged[consumer * 4 + warp], lane);
  }
}

#endif

template <BmmOutput kOutput>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    bmm_wgmma_kernel(const __grid_constant__ BmmArgs a, const __grid_constant__ CUtensorMap x_map,
                     const __grid_constant__ CUtensorMap w_map,
                     const __grid_constant__ WgmmaPlan plan) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  // Registers per producer and per consumer thread.
  constexpr int kProducerRegisters = 40;
  constexpr int kConsumerRegisters = 232;
  extern __shared__ unsigned char raw[];
  auto& shared =
      *reinterpret_cast<WgmmaShared*>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~uintptr_t{1023});
  let_next_start();
  if (threadIdx.x == 0) {
    prefetch_map(x_map);
    prefetch_map(w_map);
    for (int s = 0; s < kWgmmaStages; ++s) {
      barrier_init(shared_address(&shared.full[s]), 1);
      barrier_init(shared_address(&shared.empty[s]), kWgmmaConsumers);
    }
    barrier_init_fence();
  }
  __syncthreads();
  wait_for_previous();

  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kProducerRegisters));
    if (threadIdx.x == 0) produce(shared, x_map, w_map, plan);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kConsumerRegisters));
    consume<kOutput>(shared, a, plan, static_cast<int>(threadIdx.x / 128) - 1);
  }
#endif
}

}  // namespace bitgnn::cuda::bmm
