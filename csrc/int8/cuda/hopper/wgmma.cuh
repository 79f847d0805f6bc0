// Hopper product of 8-bit rows: the weights of up to 256 outputs stay in shared memory while
// persistent blocks stream tiles of 64 rows through rings of stages of 128 features. Warpgroups
// take turns at the tiles: one multiplies while others store. Bound by reading the rows and writing
// float results, or, from codes to bits of many outputs, by the tensor cores as well.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "int8/cuda/hopper/producers.cuh"

namespace bitgnn::cuda::int8 {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Writes 16 rows by 32 columns of values as whole lines, which pass through `scratch`: 2 KB of the
// warp, 16-byte units of row r at their index XOR 2 (r % 4), free of bank conflicts.
__device__ __forceinline__ void store_lines(const Int8BmmArgs& a, unsigned char* scratch,
                                            const SlabValues& value, int64_t row, int64_t column,
                                            int lane) {
  const int group = fragment_group(lane), unit = lane % 8;
  unsigned char* const to = scratch + group * kSwizzleBytes;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int at = (i / 2 * 32 + fragment_quad(lane) * 8) ^ group % 4 * 32;
    *reinterpret_cast<float2*>(to + i % 2 * 8 * kSwizzleBytes + at) = value[i / 2][i % 2];
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kMmaRows; i += 4) {
    const int at = i + lane / 8;
    const auto line = *reinterpret_cast<const float4*>(scratch + at * kSwizzleBytes +
                                                       (unit * 16 ^ lane / 8 * 32));
    if (row + at < a.rows && column + unit * 4 < a.out_features)
      *reinterpret_cast<float4*>(a.out_float + (row + at) * a.out_features + column + unit * 4) =
          line;
  }
}

// Largest number of features for which a sum less a threshold fits in int32.
constexpr int64_t kMostDifferenceFeatures = kMostInt8Features / 2;
static_assert(kMostChunks * kChunk <= kMostDifferenceFeatures, "differences fit in int32");

// Sums that are compared with integers start at minus the threshold and are negative where the bit
// is 0. The starts of a lane's four sums of eight columns lie together, in place of terms that
// comparisons of integers do not need.
template <int kColumns>
__device__ __forceinline__ int4* sum_starts(bmm::ColumnTable<kColumns>& table) {
  static_assert(offsetof(bmm::ColumnTable<kColumns>, bias) == kColumns * sizeof(int2),
                "starts take the place of terms and scales");
  return reinterpret_cast<int4*>(table.term);
}

// Replaces the terms by the starts, and inverts all bits. All threads of the block participate.
template <int kColumns>
__device__ __forceinline__ void set_sum_starts(bmm::ColumnTable<kColumns>& table, int thread) {
  int2 below{};
  if (thread < kColumns / 2) below = reinterpret_cast<const int2*>(table.term)[thread];
  __syncthreads();
  if (thread < kColumns / 2)
    sum_starts(table)[thread] = make_int4(-1 - below.x, -1 - below.y, -1 - below.x, -1 - below.y);
  if (thread < kColumns / kWarp) table.flip[thread] = ~table.flip[thread];
}

template <Int8Output kOutput, int kColumns>
__device__ __forceinline__ void start_sums(int32_t (&sum)[kColumns / 2],
                                           bmm::ColumnTable<kColumns>& table, int lane) {
  if constexpr (kOutput == Int8Output::kBits) {
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j)
      *reinterpret_cast<int4*>(sum + j * 4) = sum_starts(table)[j * 4 + fragment_quad(lane)];
  }
}

// Sign bits of started sums as bmm::store_parts() takes them.
template <int kColumns>
__device__ __forceinline__ void sign_parts(uint32_t (&bits)[bmm::slab_parts(kColumns)],
                                           const int32_t (&sum)[kColumns / 2]) {
#pragma unroll
  for (int i = 31; i >= 0; --i) {
    const int at = i % 16 / 2 * 4 + i / 16 * 2 + i % 2;
#pragma unroll
    for (int part = 0; part < bmm::slab_parts(kColumns); ++part)
      bits[part] = __funnelshift_l(static_cast<uint32_t>(sum[part * 32 + at]), bits[part], 1);
  }
}

// Adds the staged addends of 16 rows and 32 columns to values. `rows` is the warp's part of a slot.
__device__ __forceinline__ void add_staged(SlabValues& value, const unsigned char* rows, int lane) {
  const int group = fragment_group(lane);
#pragma unroll
  for (int i = 0; i < 8; ++i)
    add_values(value[i / 2][i % 2], *reinterpret_cast<const float2*>(
                                        rows + (group + i % 2 * 8) * kSwizzleBytes +
                                        ((i / 2 * 32 + fragment_quad(lane) * 8) ^ group * 16)));
}

// Writes the slab of a warp; staged addends come from the ring. `scratch` is 2 KB of the warp, used
// if there are none.
template <Int8Output kOutput, int kColumns, int kRings>
__device__ __forceinline__ void finish_slab(const WgmmaMemory<kColumns, kRings>& shared,
                                            const Int8BmmArgs& a, const WgmmaPlan& plan,
                                            unsigned char* scratch,
                                            const int32_t (&sum)[kColumns / 2], int64_t row,
                                            int64_t column, StageRing& ring, int lane) {
  const auto& table = shared.tail.columns;
  uint32_t bits[bmm::slab_parts(kColumns)] = {};
  if constexpr (kOutput == Int8Output::kBits) {
    sign_parts<kColumns>(bits, sum);
  } else {
    const int first_byte = static_cast<int>(row % kWgmmaRows) * kSwizzleBytes;
#pragma unroll
    for (int slot = 0; slot < kColumns / kSlotColumns; ++slot) {
      const int first = slot * kSlotColumns;
      if (column + first >= a.out_features) break;
      SlabValues value;
      if (plan.staged) {
        scaled_values(value, table, sum, first, lane);
        ring.wait_full();
        scratch = ring.stage() + first_byte;
        add_staged(value, scratch, lane);
      } else {
        slab_values(value, a, table, sum, first, row, column, lane);
      }
      if constexpr (kOutput == Int8Output::kFloat) {
        if (plan.lines)
          store_lines(a, scratch, value, row, column + first, lane);
        else
          store_values(a, value, row, column + first, lane);
      } else if (slot % 2 == 0) {
        compare_values<0>(bits[slot / 2], value, table.threshold + slot / 2 * 64, lane);
      } else {
        compare_values<1>(bits[slot / 2], value, table.threshold + slot / 2 * 64, lane);
      }
      if (plan.staged) {
        // An arrival may overtake reads. Stored values depend on them; bits are not stored yet.
        if constexpr (kOutput != Int8Output::kFloat) wgmma_write_fence();
        __syncwarp();
        if (lane == 0) barrier_arrive(ring.empty());
        ring.advance();
      }
    }
  }
  if constexpr (kOutput != Int8Output::kFloat)
    bmm::store_parts(bits_target(a, row, column), table, bits, lane);
}

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
  const uint64_t first_weights = wgmma_descriptor(shared_address(shared.weights));
  const BlockTiles tiles(plan);
  StageRing ring = shared.ring(consumer, plan);
  bool has_weights = false;
  for (int64_t tile = tiles.first + consumer * tiles.stride; tile < tiles.end;
       tile += kConsumers * tiles.stride) {
    if (kTurns && tile != tiles.first) group_sync(turn, kTurnThreads);
    int32_t sum[kColumns / 2];
    start_sums<kOutput>(sum, shared.tail.columns, lane);
    unsigned char* stage = nullptr;
    uint32_t before = 0;
    uint64_t weights = first_weights;
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      if (!has_weights) barrier_wait(shared_address(shared.tail.weights + chunk), 0);
      ring.wait_full();
      // Here rather than where the codes are written: there it would wait for the loads in flight.
      if constexpr (kFloats) wgmma_write_fence();
      stage = ring.stage();
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
    const int64_t row = tile * kWgmmaRows + warp * kMmaRows;
    finish_slab<kOutput>(shared, a, plan, stage + warp * kMmaRows * kSwizzleBytes, sum, row, column,
                         ring, lane);
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
