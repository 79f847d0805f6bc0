// Hopper product of many ternary rows with +-1 weights: TMA copies, wgmma, and persistent blocks
// that loop over tiles. Rows are stored as pos and the complement of neg, so that both planes are
// multiplied with the same weight tile into one accumulator:
//   acc = popc(w & pos) + popc(w & ~neg),  dot = 2 * (acc - |w|) - (|pos| - |neg|).
// Bound by the tensor cores.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/hopper/async_copy.cuh"
#include "core/cuda/hopper/ring.cuh"
#include "core/cuda/mma_b1.cuh"
#include "ternary/cuda/hopper/linear_wgmma_plan.h"
#include "ternary/cuda/hopper/weight_counts.cuh"
#include "ternary/cuda/pack/rows.cuh"
#include "ternary/cuda/values.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kTernaryThreads = (kTernaryConsumers + 1) * 128;
constexpr int kTernaryPlaneBytes = kTernaryTileRows * kSwizzleBytes;
constexpr int kTernarySlab = 64;  // columns staged by a warp at a time

template <int kColumns>
struct TernaryWgmma {
  static constexpr int kStages = kColumns == 256 ? 3 : 4;
  static constexpr int kStageBytes = 2 * kTernaryPlaneBytes + kColumns * kSwizzleBytes;

  struct Shared {
    alignas(1024) unsigned char stages[kStages][kStageBytes];
    // Epilogue terms of the tile's columns; term is -2 |w|.
    alignas(8) float scale[kTernaryConsumers][kColumns];
    alignas(8) float bias[kTernaryConsumers][kColumns];
    alignas(8) int32_t term[kTernaryConsumers][kColumns];
    alignas(16) uint16_t staged[kTernaryConsumers * 4][kMmaRows][kTernarySlab + 8];
    uint64_t full[kStages];
    uint64_t empty[kStages];
  };
};

// Packs float rows into pos and the complement of neg; further blocks count the weights' bits.
template <class T, int kRowWarps>
__global__ void __launch_bounds__(kTernaryPackWarps* kWarp)
    ternary_prepare_kernel(const TernaryPackArgs a, bool aligned, const CountedWeights weights) {
  if (static_cast<int>(blockIdx.x) < weights.row_blocks) {
    pack_ternary_row<T, kRowWarps>(a, PackedPlanes::kComplement, aligned,
                                   static_cast<int>(blockIdx.x));
  } else {
    weights.count();
  }
}

// The same for packed rows: copies pos, complements neg; one warp per row.
__global__ void __launch_bounds__(kTernaryPackWarps* kWarp)
    ternary_complement_kernel(const TernaryBmmArgs a, const CountedWeights weights, int32_t* planes,
                              int32_t* differences) {
  if (static_cast<int>(blockIdx.x) >= weights.row_blocks) {
    weights.count();
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kTernaryPackWarps + threadIdx.x / kWarp;
  let_next_start();
  wait_for_previous();
  if (row >= a.rows) return;
  const int quarters = weights.words / 4;
  const auto* from = reinterpret_cast<const uint4*>(a.x) + row * 2 * quarters;
  auto* to = reinterpret_cast<uint4*>(planes) + row * 2 * quarters;
  int count = 0;
#pragma unroll 2
  for (int i = lane; i < quarters; i += kWarp) {
    const uint4 pos = from[i], neg = from[quarters + i];
    count += __popc(pos.x) + __popc(pos.y) + __popc(pos.z) + __popc(pos.w);
    to[i] = pos;
    to[quarters + i] = make_uint4(~neg.x, ~neg.y, ~neg.z, ~neg.w);
  }
  count = __reduce_add_sync(kFullWarp, count);
  if (lane == 0) differences[row] = 2 * count - a.counts[row];
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <int kColumns>
__device__ __forceinline__ void produce_ternary(typename TernaryWgmma<kColumns>::Shared& shared,
                                                const CUtensorMap& x_map, const CUtensorMap& w_map,
                                                const TernaryWgmmaPlan& plan) {
  using Kernel = TernaryWgmma<kColumns>;
  RingCursor ring;
  const int tiles = plan.row_tiles * plan.column_tiles;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    int row_tile, column_tile;
    locate_tile(tile, plan.row_tiles, plan.column_tiles, row_tile, column_tile);
    for (int block = 0; block < plan.blocks; ++block) {
      barrier_wait(shared_address(&shared.empty[ring.at]), ring.phase ^ 1);
      const uint32_t full = shared_address(&shared.full[ring.at]);
      const uint32_t stage = shared_address(shared.stages[ring.at]);
      const int word = block * kSwizzleWords, row = row_tile * kTernaryTileRows;
      barrier_expect(full, Kernel::kStageBytes);
      copy_tile(stage, x_map, word, row, full);
      copy_tile(stage + kTernaryPlaneBytes, x_map, plan.words + word, row, full);
      copy_tile(stage + 2 * kTernaryPlaneBytes, w_map, word, column_tile * kColumns, full);
      ring.advance(Kernel::kStages);
    }
  }
}

// Output values of two adjacent columns in the lane's two rows.
template <class T>
struct TernaryPairs {
  T row[2][2];

  template <class Shared>
  __device__ __forceinline__ TernaryPairs(const Shared& shared, int table, int column,
                                          const int32_t* sum, const int32_t (&difference)[2]) {
    const int2 term = *reinterpret_cast<const int2*>(&shared.term[table][column]);
    const int32_t dot[4] = {
        2 * sum[0] + (term.x - difference[0]), 2 * sum[1] + (term.y - difference[0]),
        2 * sum[2] + (term.x - difference[1]), 2 * sum[3] + (term.y - difference[1])};
    if constexpr (std::is_same_v<T, int32_t>) {
      memcpy(row, dot, sizeof(row));
    } else {
      const float2 scale = *reinterpret_cast<const float2*>(&shared.scale[table][column]);
      const float2 bias = *reinterpret_cast<const float2*>(&shared.bias[table][column]);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        row[r][0] = rounded<T>(TernaryTerms{scale.x, bias.x}.value(dot[2 * r]));
        row[r][1] = rounded<T>(TernaryTerms{scale.y, bias.y}.value(dot[2 * r + 1]));
      }
    }
  }
};

// Stores a warp's 16 rows by kColumns columns: lane 4 g + q holds columns 2 q and 2 q + 1 of every
// eight, in rows g and g + 8.
template <int kColumns, class T, class Shared>
__device__ __forceinline__ void store_ternary(Shared& shared, int table, const TernaryBmmArgs& a,
                                              const TernaryWgmmaPlan& plan,
                                              const int32_t (&sum)[kColumns / 2],
                                              const int32_t (&difference)[2], int64_t row,
                                              int64_t column, int warp, int lane) {
  const int group = fragment_group(lane), quad = fragment_quad(lane);
  T* out = static_cast<T*>(a.out) + row * a.out_features + column;
  const auto rows = static_cast<int>(min(a.rows - row, static_cast<int64_t>(kMmaRows)));
  const auto columns =
      static_cast<int>(min(a.out_features - column, static_cast<int64_t>(kColumns)));
  if (sizeof(T) == 2 && plan.vectors) {
    auto& staged = shared.staged[warp];
    const int r = lane / 8, c = lane % 8 * 8;
    T* to = out + r * a.out_features + c;
#pragma unroll
    for (int slab = 0; slab < kColumns / kTernarySlab; ++slab) {
#pragma unroll
      for (int i = 0; i < kTernarySlab / 8; ++i) {
        const int at = i * 8 + quad * 2;
        const TernaryPairs<T> pairs(shared, table, slab * kTernarySlab + at,
                                    sum + (slab * (kTernarySlab / 8) + i) * 4, difference);
        memcpy(&staged[group][at], pairs.row[0], 4);
        memcpy(&staged[group + 8][at], pairs.row[1], 4);
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint4 v = *reinterpret_cast<const uint4*>(&staged[r + 4 * i][c]);
        if (r + 4 * i < rows && slab * kTernarySlab + c < columns)
          __stcs(reinterpret_cast<uint4*>(to + 4 * i * a.out_features + slab * kTernarySlab), v);
      }
      __syncwarp();
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kColumns / 8; ++i) {
    const int at = i * 8 + quad * 2;
    const TernaryPairs<T> pairs(shared, table, at, sum + i * 4, difference);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int r = group + k / 2 * 8;
      if (r < rows && at + k % 2 < columns)
        out[r * a.out_features + at + k % 2] = pairs.row[k / 2][k % 2];
    }
  }
}

// `table` selects the columns' terms, `warp` the staging buffer through which values are reordered.
template <int kColumns, class Shared>
__device__ __forceinline__ void store_ternary_values(Shared& shared, int table,
                                                     const TernaryBmmArgs& a,
                                                     const TernaryWgmmaPlan& plan,
                                                     const int32_t (&sum)[kColumns / 2],
                                                     const int32_t (&difference)[2], int64_t row,
                                                     int64_t column, int warp, int lane) {
  with_value(a.type, [&](auto zero) {
    store_ternary<kColumns, decltype(zero)>(shared, table, a, plan, sum, difference, row, column,
                                            warp, lane);
  });
}

template <int kColumns>
__device__ __forceinline__ void consume_ternary(typename TernaryWgmma<kColumns>::Shared& shared,
                                                const TernaryBmmArgs& a,
                                                const TernaryWgmmaPlan& plan, int consumer) {
  using Kernel = TernaryWgmma<kColumns>;
  constexpr int kOwn = kColumns / 128;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int warp = thread / kWarp, lane = thread % kWarp;
  const int group_barrier = 1 + consumer;
  RingCursor ring;
  const int tiles = plan.row_tiles * plan.column_tiles;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    int row_tile, column_tile;
    locate_tile(tile, plan.row_tiles, plan.column_tiles, row_tile, column_tile);
    const int64_t row =
        static_cast<int64_t>(row_tile) * kTernaryTileRows + consumer * kWgmmaRows + warp * kMmaRows;
    const int64_t column = static_cast<int64_t>(column_tile) * kColumns;
    int32_t sum[kColumns / 2];
    LoadedTerms loaded[kOwn];
    int32_t weight_count[kOwn], difference[2];
    int before = 0;
    for (int block = 0; block < plan.blocks; ++block) {
      barrier_wait(shared_address(&shared.full[ring.at]), ring.phase);
      const uint32_t stage = shared_address(shared.stages[ring.at]);
      const uint64_t pos = wgmma_descriptor(stage + consumer * kWgmmaRows * kSwizzleBytes);
      const uint64_t neg =
          wgmma_descriptor(stage + kTernaryPlaneBytes + consumer * kWgmmaRows * kSwizzleBytes);
      const uint64_t w = wgmma_descriptor(stage + 2 * kTernaryPlaneBytes);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kWgmmaSteps; ++step) {
        wgmma_and_popc(sum, pos + step * kWgmmaAdvance, w + step * kWgmmaAdvance,
                       block != 0 || step != 0);
        wgmma_and_popc(sum, neg + step * kWgmmaAdvance, w + step * kWgmmaAdvance, true);
      }
      wgmma_commit();
      if (block == 0) {
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          const int64_t output = min(column + thread + i * 128, a.out_features - 1);
          loaded[i].load(a, output);
          weight_count[i] = plan.weight_counts[output];
        }
#pragma unroll
        for (int r = 0; r < 2; ++r)
          difference[r] = plan.differences[min(row + fragment_group(lane) + r * 8, a.rows - 1)];
      } else {
        wgmma_wait<1>();
        if (thread == 0) barrier_arrive(shared_address(&shared.empty[before]));
      }
      before = ring.at;
      ring.advance(Kernel::kStages);
    }
    group_sync(group_barrier, 128);  // the previous tile has been stored
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const TernaryTerms terms = loaded[i].terms();
      shared.scale[consumer][thread + i * 128] = terms.scale;
      shared.bias[consumer][thread + i * 128] = terms.bias;
      shared.term[consumer][thread + i * 128] = -2 * weight_count[i];
    }
    group_sync(group_barrier, 128);
    wgmma_wait<0>();
    if (thread == 0) barrier_arrive(shared_address(&shared.empty[before]));
    store_ternary_values<kColumns>(shared, consumer, a, plan, sum, difference, row, column,
                                   consumer * 4 + warp, lane);
  }
}

#endif

template <int kColumns>
__global__ void __launch_bounds__(kTernaryThreads, 1)
    ternary_wgmma_kernel(const TernaryBmmArgs a, const __grid_constant__ CUtensorMap x_map,
                         const __grid_constant__ CUtensorMap w_map, const TernaryWgmmaPlan plan) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Kernel = TernaryWgmma<kColumns>;
  extern __shared__ unsigned char memory[];
  auto& shared = *reinterpret_cast<typename Kernel::Shared*>(
      (reinterpret_cast<uintptr_t>(memory) + 1023) & ~uintptr_t{1023});
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Kernel::kStages; ++i) {
      barrier_init(shared_address(&shared.full[i]), 1);
      barrier_init(shared_address(&shared.empty[i]), kTernaryConsumers);
    }
    barrier_init_fence();
    prefetch_map(x_map);
    prefetch_map(w_map);
  }
  __syncthreads();
  let_next_start();
  wait_for_previous();
  // Registers move from the producer warpgroup to the consumers, which hold the sums.
  if (group == kTernaryConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;\n");
    if (threadIdx.x % 128 == 0) produce_ternary<kColumns>(shared, x_map, w_map, plan);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;\n");
    consume_ternary<kColumns>(shared, a, plan, group);
  }
#endif
}

}  // namespace bitgnn::cuda::ternary
