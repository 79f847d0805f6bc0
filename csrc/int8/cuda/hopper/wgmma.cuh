// Hopper product of 8-bit rows: the weights of up to 256 outputs stay in shared memory while
// persistent blocks stream tiles of 64 rows through a ring of stages of 128 features. Codes are
// copied by the TMA; floats are loaded and quantised by producer warps. Warpgroups take turns at
// the tiles, so that one multiplies while another stores. Bound by reading the rows, or, from
// codes, by the tensor cores if there are many outputs.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/hopper/async_copy.cuh"
#include "core/cuda/hopper/ring.cuh"
#include "core/cuda/hopper/wgmma_s8.cuh"
#include "int8/cuda/epilogue.cuh"
#include "int8/cuda/quantise.cuh"

namespace bitgnn::cuda::int8 {

constexpr int kStageBytes = kWgmmaRows * kSwizzleBytes;
constexpr int kMostStages = 16;
constexpr int kLeastStages = 4;
constexpr int kGroupThreads = 128;  // of a warpgroup
constexpr int kGroupWarps = kGroupThreads / kWarp;
static_assert(kChunk == kSwizzleBytes, "a stage holds a chunk of every row");

// Division of the work, and the shared memory behind the weights and the ring.
struct WgmmaPlan {
  int chunks;
  int stages;
  int64_t row_tiles;
  int column_tiles;
  bool vectors;  // float rows consist of whole aligned vectors

  // Tiles of the block's column tile: first, first + stride, ...
  __device__ __forceinline__ int64_t first() const { return blockIdx.x / column_tiles; }
  __device__ __forceinline__ int64_t stride() const { return gridDim.x / column_tiles; }
};

template <int kColumns>
struct WgmmaTail {
  bmm::ColumnTable<kColumns> columns;
  uint64_t full[kMostStages];
  uint64_t empty[kMostStages];
  uint64_t weights;
};

// Place of a producer or consumer in the ring; the phase flips with every turn.
struct StageCursor {
  int at = 0;
  int phase = 0;
  __device__ __forceinline__ void advance(int count, int stages) {
    at += count;
    while (at >= stages) {
      at -= stages;
      phase ^= 1;
    }
  }
};

// A block's shared memory.
template <int kColumns>
struct WgmmaMemory {
  unsigned char* weights;  // [chunks][kColumns][128], 1024-byte aligned
  unsigned char* ring;     // [stages][64][128]
  WgmmaTail<kColumns>& tail;
  float* centres;  // [chunks * 128], then inverse steps likewise, if rows are floats

  __device__ __forceinline__ WgmmaMemory(unsigned char* raw, const WgmmaPlan& plan)
      : weights(reinterpret_cast<unsigned char*>((reinterpret_cast<uintptr_t>(raw) + 1023) &
                                                 ~uintptr_t{1023})),
        ring(weights + plan.chunks * kColumns * kSwizzleBytes),
        tail(*reinterpret_cast<WgmmaTail<kColumns>*>(ring + plan.stages * kStageBytes)),
        centres(reinterpret_cast<float*>(&tail + 1)) {}
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Copies chunks of codes to the ring; one thread.
template <int kColumns>
__device__ __forceinline__ void copy_rows(const WgmmaMemory<kColumns>& shared,
                                          const WgmmaPlan& plan, const CUtensorMap& rows) {
  RingCursor ring;
  for (int64_t tile = plan.first(); tile < plan.row_tiles; tile += plan.stride()) {
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      barrier_wait(shared_address(&shared.tail.empty[ring.at]), ring.phase ^ 1);
      const uint32_t full = shared_address(&shared.tail.full[ring.at]);
      barrier_expect(full, kStageBytes);
      copy_tile(shared_address(shared.ring + ring.at * kStageBytes), rows, chunk * kSwizzleWords,
                static_cast<int>(tile) * kWgmmaRows, full);
      ring.advance(plan.stages);
    }
  }
}

// Quantises chunks of floats to the ring: each of eight warps takes eight rows, whose next values
// it loads before it rounds the current ones.
template <class T, bool kVector, int kColumns>
__device__ __forceinline__ void quantise_rows(const WgmmaMemory<kColumns>& shared,
                                              const WgmmaPlan& plan, const Int8PackArgs& pack,
                                              int warp, int lane) {
  static_assert(kBatch == 8, "rows of a batch differ in their swizzle");
  const float* inverse_steps = shared.centres + plan.chunks * kChunk;
  RingCursor ring;
  int64_t next_tile = plan.first();
  int next_chunk = 0;
  const auto load_next = [&](LaneValues<T, kVector>(&to)[kBatch]) {
    load_batch(to, pack, next_tile * kWgmmaRows + warp * kBatch, next_chunk, lane);
    if (++next_chunk == plan.chunks) {
      next_chunk = 0;
      next_tile += plan.stride();
    }
  };
  int chunk = 0;
  const auto store = [&](const LaneValues<T, kVector>(&values)[kBatch]) {
    LaneScales scales;
    scales.read<kVector>(shared.centres, inverse_steps, chunk, lane);
    if (++chunk == plan.chunks) chunk = 0;
    barrier_wait(shared_address(&shared.tail.empty[ring.at]), ring.phase ^ 1);
    unsigned char* rows = shared.ring + ring.at * kStageBytes + warp * kBatch * kSwizzleBytes;
#pragma unroll
    for (int r = 0; r < kBatch; ++r)
      store_codes<kVector>(rows + r * kSwizzleBytes, lane_codes(values[r], scales), lane, r);
    wgmma_write_fence();
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&shared.tail.full[ring.at]));
    ring.advance(plan.stages);
  };
  LaneValues<T, kVector> even[kBatch], odd[kBatch];
  load_next(even);
  // Loads past the last tile find no rows.
  for (int64_t tile = plan.first(); tile < plan.row_tiles;) {
    load_next(odd);
    store(even);
    if (chunk == 0) tile += plan.stride();
    if (tile >= plan.row_tiles) break;
    load_next(even);
    store(odd);
    if (chunk == 0) tile += plan.stride();
  }
}

template <Int8Output kOutput, int kColumns, int kConsumers>
__device__ __forceinline__ void consume(const WgmmaMemory<kColumns>& shared, const Int8BmmArgs& a,
                                        const WgmmaPlan& plan, int64_t column, int consumer) {
  constexpr uint64_t kChunkAdvance = kColumns * kSwizzleBytes >> 4;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) % kGroupThreads / kWarp;
  const uint64_t first_weights = wgmma_descriptor(shared_address(shared.weights));
  StageCursor ring;
  ring.advance(consumer * plan.chunks, plan.stages);
  barrier_wait(shared_address(&shared.tail.weights), 0);
  for (int64_t tile = plan.first() + consumer * plan.stride(); tile < plan.row_tiles;
       tile += kConsumers * plan.stride()) {
    int32_t sum[kColumns / 2];
    int before = 0;
    uint64_t weights = first_weights;
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      barrier_wait(shared_address(&shared.tail.full[ring.at]), ring.phase);
      const uint64_t rows = wgmma_descriptor(shared_address(shared.ring + ring.at * kStageBytes));
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kWgmmaSteps; ++step)
        wgmma_s8(sum, rows + step * kWgmmaAdvance, weights + step * kWgmmaAdvance,
                 chunk != 0 || step != 0);
      wgmma_commit();
      if (chunk != 0) {
        wgmma_wait<1>();
        if (lane == 0) barrier_arrive(shared_address(&shared.tail.empty[before]));
      }
      before = ring.at;
      weights += kChunkAdvance;
      ring.advance(1, plan.stages);
    }
    wgmma_wait<0>();
    if (lane == 0) barrier_arrive(shared_address(&shared.tail.empty[before]));
    ring.advance((kConsumers - 1) * plan.chunks, plan.stages);
    store_slab<kOutput>(a, shared.tail.columns, sum, tile * kWgmmaRows + warp * kMmaRows, column,
                        lane);
  }
}

#endif

// Warpgroups of a block: producers, then consumers. Their registers add up to those of a
// multiprocessor.
template <int kColumns, bool kFloats>
struct WgmmaGroups {
  static constexpr int kProducers = kFloats ? 2 : 1;
  static constexpr int kConsumers = kFloats ? 1 : kColumns > 128 ? 2 : 3;
  static constexpr int kThreads = (kProducers + kConsumers) * kGroupThreads;
  static constexpr int kRegisters = 65536 / kThreads / 8 * 8;  // of a thread at the start
  static constexpr int kProducerRegisters = !kFloats ? 40 : kColumns > 128 ? 152 : 176;
  static constexpr int kConsumerRegisters =
      kFloats ? (kColumns > 128 ? 208 : 144) : (kConsumers == 3 ? 152 : 232);
  static_assert((kProducers * kProducerRegisters + kConsumers * kConsumerRegisters) *
                        kGroupThreads <=
                    65536,
                "registers of a multiprocessor");
};

// Changes the registers of every thread of a warpgroup.
template <int kBefore, int kAfter>
__device__ __forceinline__ void set_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (kAfter < kBefore)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kAfter));
  else
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kAfter));
#endif
}

template <Int8Output kOutput, int kColumns, bool kFloats>
__global__ void __launch_bounds__(WgmmaGroups<kColumns, kFloats>::kThreads, 1)
    int8_wgmma_kernel(const __grid_constant__ Int8BmmArgs a,
                      const __grid_constant__ Int8PackArgs pack,
                      const __grid_constant__ CUtensorMap rows_map,
                      const __grid_constant__ CUtensorMap weights_map,
                      const __grid_constant__ WgmmaPlan plan) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Groups = WgmmaGroups<kColumns, kFloats>;
  extern __shared__ unsigned char raw[];
  const WgmmaMemory<kColumns> shared(raw, plan);
  const int thread = static_cast<int>(threadIdx.x);
  const int column_tile = static_cast<int>(blockIdx.x) % plan.column_tiles;
  const int64_t column = static_cast<int64_t>(column_tile) * kColumns;
  let_next_start();
  if (thread == 0) {
    prefetch_map(weights_map);
    if constexpr (!kFloats) prefetch_map(rows_map);
    constexpr int kWriters = kFloats ? Groups::kProducers * kGroupWarps : 1;
    for (int s = 0; s < plan.stages; ++s) {
      barrier_init(shared_address(&shared.tail.full[s]), kWriters);
      barrier_init(shared_address(&shared.tail.empty[s]), kGroupWarps);
    }
    barrier_init(shared_address(&shared.tail.weights), 1);
    barrier_init_fence();
  }
  wait_for_previous();
  if (thread == 0) {
    const uint32_t barrier = shared_address(&shared.tail.weights);
    const int bytes = kColumns * kSwizzleBytes;
    barrier_expect(barrier, plan.chunks * bytes);
    for (int chunk = 0; chunk < plan.chunks; ++chunk)
      copy_tile(shared_address(shared.weights + chunk * bytes), weights_map, chunk * kSwizzleWords,
                column_tile * kColumns, barrier);
  }
  load_columns<kOutput>(shared.tail.columns, a, column, thread, Groups::kThreads);
  if constexpr (kFloats) {
    for (int i = thread; i < plan.chunks * kChunk; i += Groups::kThreads) {
      shared.centres[i] = i < a.size ? __ldg(pack.centre + i) : 0.0f;
      shared.centres[plan.chunks * kChunk + i] = i < a.size ? __ldg(pack.inverse_step + i) : 0.0f;
    }
  }
  __syncthreads();

  const int group = thread / kGroupThreads;
  if (group < Groups::kProducers) {
    set_registers<Groups::kRegisters, Groups::kProducerRegisters>();
    if constexpr (kFloats) {
      with_row_form(pack.type, plan.vectors, [&](auto zero, auto vectors) {
        quantise_rows<decltype(zero), decltype(vectors)::value>(shared, plan, pack, thread / kWarp,
                                                                thread % kWarp);
      });
    } else {
      if (thread == 0) copy_rows(shared, plan, rows_map);
    }
  } else {
    set_registers<Groups::kRegisters, Groups::kConsumerRegisters>();
    consume<kOutput, kColumns, Groups::kConsumers>(shared, a, plan, column,
                                                   group - Groups::kProducers);
  }
#endif
}

}  // namespace bitgnn::cuda::int8
