// Hopper product of 8-bit rows: the weights of up to 256 outputs stay in shared memory while
// persistent blocks stream tiles of 64 rows through rings of stages of 128 features. Warpgroups
// take turns at the tiles: one multiplies while others store. Bound by reading the rows and writing
// float results, or, from codes to bits of many outputs, by the tensor cores.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "int8/cuda/hopper/producers.cuh"

namespace bitgnn::cuda::int8 {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Passes the slab of a warp through the tile's slots: adds what they bring and, for float outputs,
// lets them take the results to memory.
template <Int8Output kOutput, int kColumns, int kRings>
__device__ __forceinline__ void store_staged(const WgmmaMemory<kColumns, kRings>& shared,
                                             const Int8BmmArgs& a, const CUtensorMap& out,
                                             const int32_t (&sum)[kColumns / 2], int64_t row,
                                             int64_t column, StageRing& ring, int lane) {
  constexpr bool kFloat = kOutput == Int8Output::kFloat;
  const int group = fragment_group(lane), quad = fragment_quad(lane);
  const int warp_bytes = static_cast<int>(row % kWgmmaRows) * kSwizzleBytes;
  const bool adds = a.addend != nullptr;
  uint32_t bits[bmm::slab_parts(kColumns)] = {};
  uint32_t before = 0;
#pragma unroll
  for (int slot = 0; slot < kColumns / kSlotColumns; ++slot) {
    if (slot >= shared.slots) break;
    const int first = slot * kSlotColumns;
    SlabValues value;
    scaled_values(value, shared.tail.columns, sum, first, lane);
    ring.wait_full();
    unsigned char* const own = ring.stage() + warp_bytes;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float2& v = value[i / 2][i % 2];
      auto* const place = reinterpret_cast<float2*>(own + (group + i % 2 * 8) * kSwizzleBytes +
                                                    ((i / 2 * 32 + quad * 8) ^ group * 16));
      if (adds) add_values(v, *place);
      if constexpr (kFloat) *place = v;
    }
    if constexpr (kFloat) {
      wgmma_write_fence();
      __syncwarp();
      if (lane == 0) {
        if (row < a.rows)
          store_tile(out, shared_address(own), static_cast<int>(column) + first,
                     static_cast<int>(row));
        store_commit();
        if (slot > 0) {
          store_wait_read<1>();
          barrier_arrive(before);
        }
      }
      before = ring.empty();
    } else {
      __syncwarp();
      if (lane == 0) barrier_arrive(ring.empty());
      const float* limits = shared.tail.columns.threshold + slot / 2 * 64;
      if (slot % 2 == 0)
        compare_values<0>(bits[slot / 2], value, limits, lane);
      else
        compare_values<1>(bits[slot / 2], value, limits, lane);
    }
    ring.advance();
  }
  if constexpr (kFloat) {
    if (lane == 0) {
      store_wait_read<0>();
      barrier_arrive(before);
    }
    __syncwarp();
  } else {
    bmm::store_parts(bits_target(a, row, column), shared.tail.columns, bits, lane);
  }
}

template <Int8Output kOutput, int kColumns, int kConsumers>
__device__ __forceinline__ void consume(const WgmmaMemory<kColumns, kConsumers>& shared,
                                        const Int8BmmArgs& a, const WgmmaPlan& plan,
                                        const CUtensorMap& out, int64_t column, int consumer) {
  constexpr uint64_t kChunkAdvance = kColumns * kSwizzleBytes >> 4;
  constexpr int kTurnThreads = 2 * kGroupThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) % kGroupThreads / kWarp;
  const int turn = 1 + consumer, next_turn = 1 + (consumer + 1) % kConsumers;
  const uint64_t first_weights = wgmma_descriptor(shared_address(shared.weights));
  StageRing ring = shared.ring(consumer, plan);
  bool has_weights = false;
  for (int64_t tile = plan.first() + consumer * plan.stride(); tile < plan.row_tiles;
       tile += kConsumers * plan.stride()) {
    if (kConsumers > 1 && tile != plan.first()) group_sync(turn, kTurnThreads);
    int32_t sum[kColumns / 2];
    uint32_t before = 0;
    uint64_t weights = first_weights;
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      if (!has_weights) barrier_wait(shared_address(shared.tail.weights + chunk), 0);
      ring.wait_full();
      const uint64_t rows = wgmma_descriptor(shared_address(ring.stage()));
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kWgmmaSteps; ++step)
        wgmma_s8(sum, rows + step * kWgmmaAdvance, weights + step * kWgmmaAdvance,
                 chunk != 0 || step != 0);
      wgmma_commit();
      if (chunk != 0) {
        wgmma_wait<1>();
        if (lane == 0) barrier_arrive(before);
      }
      before = ring.empty();
      weights += kChunkAdvance;
      ring.advance();
    }
    has_weights = true;
    if (kConsumers > 1 && tile + plan.stride() < plan.row_tiles)
      group_arrive(next_turn, kTurnThreads);
    wgmma_wait<0>();
    if (lane == 0) barrier_arrive(before);
    const int64_t row = tile * kWgmmaRows + warp * kMmaRows;
    if (kOutput != Int8Output::kBits && plan.staged)
      store_staged<kOutput>(shared, a, out, sum, row, column, ring, lane);
    else
      store_slab<kOutput>(a, shared.tail.columns, sum, row, column, lane);
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
  static constexpr int kProducerRegisters = !kFloats ? 40 : kColumns > 128 ? 152 : 176;
  static constexpr int kConsumerRegisters = kFloats           ? (kColumns > 128 ? 200 : 144)
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
  const int slots = plan.staged ? (columns + kSlotColumns - 1) / kSlotColumns : 0;
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
      const int consumer = thread / kWarp;
      if (thread % kWarp == 0 && consumer < Groups::kConsumers)
        copy_rows(shared, plan, maps, column, a.addend != nullptr, consumer);
    }
  } else {
    set_registers<Groups::kRegisters, Groups::kConsumerRegisters>();
    consume<kOutput, kColumns, Groups::kConsumers>(shared, a, plan, maps.out, column,
                                                   group - Groups::kProducers);
  }
#endif
}

}  // namespace bitgnn::cuda::int8
