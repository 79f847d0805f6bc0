// Hopper product of many float rows, binarised on the fly, with many packed weights: definitions
// shared by the warp roles, and the two producer roles. Some warps copy weights to a ring of stages
// and count their bits, others pack the next rows.
#pragma once

#include "bmm/cuda/epilogue.cuh"
#include "bmm/cuda/floats/tile.cuh"
#include "bmm/cuda/output.cuh"
#include "core/cuda/hopper/async_copy.cuh"
#include "core/cuda/hopper/ring.cuh"
#include "core/cuda/hopper/wgmma_b1.cuh"

namespace bitgnn::cuda::bmm {

constexpr int kRingColumns = 128;  // columns per pass
constexpr int kRingStages = 4;
constexpr int kRingBuffers = 2;  // buffers of packed rows, at most
constexpr int kRingConsumers = 2;
constexpr int kRingRows = kRingConsumers * kWgmmaRows;
constexpr int kRingCopiers = 128;  // threads, one per column
constexpr int kRingPackers = 256;  // threads
constexpr int kRingThreads = kRingCopiers + kRingPackers + kRingConsumers * 128;
constexpr int kRingWords = kSwizzleWords;  // words of a row per stage
constexpr int kRingStageWords = kRingColumns * kRingWords;
constexpr int kRingBlockWords = kRingRows * kRingWords;  // 1024 bits of all packed rows

// Position of a word in rows of 128 bytes whose 16-byte units are swizzled by the row number.
__device__ __forceinline__ int ring_place(int row, int word) {
  return row * kRingWords + (word ^ ((row & 7) << 2));
}

// Packed rows, stored in blocks of 1024 bits of all rows.
struct RingRows {
  uint32_t* words;
  __device__ __forceinline__ uint32_t* place(int row, int word) const {
    return words + word / kRingWords * kRingBlockWords + ring_place(row, word % kRingWords);
  }
};

struct RingPlan {
  int words;      // of a row
  int blocks;     // of 1024 bits
  int buffers;    // of packed rows
  int64_t tiles;  // of rows
  int passes;     // over the columns
  bool vectors;   // weight rows are 16-byte aligned
  bool bulk;      // weights are copied by one thread, a stage at a time
  BmmOutput output;
};

struct RingShared {
  alignas(1024) uint32_t stages[kRingStages][kRingStageWords];
  ColumnTable<kRingColumns> tables[2];
  int32_t counts[kRingBuffers][kRingRows];
  float scales[kRingBuffers][kRingRows];
  uint64_t full[kRingStages], empty[kRingStages];
  uint64_t table_full[2], table_empty[2];
  uint64_t rows_full[kRingBuffers], rows_empty[kRingBuffers];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Iterates over all stages of the block: 1024 bits at a time, pass by pass, tile by tile.
struct RingWalk {
  int pass;
  int block = 0;
  RingCursor turn;
  __device__ __forceinline__ void advance(const RingPlan& plan) {
    turn.advance(kRingStages);
    if (++block < plan.blocks) return;
    block = 0;
    pass += gridDim.y;
    if (pass >= plan.passes) pass = static_cast<int>(blockIdx.y);
  }
};

// Arrives at `barrier` for a warp once all its lanes are done.
__device__ __forceinline__ void arrive_warp(const uint64_t& barrier, int lane) {
  __syncwarp();
  if (lane == 0) barrier_arrive(shared_address(&barrier));
}

// Starts the async copy of a stage, with zeros where nothing exists.
__device__ __forceinline__ void copy_stage(uint32_t* stage, const BmmArgs& a, const RingPlan& plan,
                                           int64_t first_column, int block, int thread) {
  const int words = plan.words - block * kRingWords;
  const int32_t* from = a.w + first_column * plan.words + block * kRingWords;
  const auto columns = static_cast<int>(min(a.out_features - first_column, int64_t{kRingColumns}));
  if (plan.vectors) {
    constexpr int kUnits = kRingWords / 4;
    const int word = thread % kUnits * 4;
#pragma unroll
    for (int i = 0; i < kRingColumns; i += kRingCopiers / kUnits) {
      const int at = i + thread / kUnits;
      const bool exists = at < columns && word < words;
      copy_async_16(stage + ring_place(at, word),
                    exists ? from + static_cast<int64_t>(at) * plan.words + word : a.w,
                    exists ? 16 : 0);
    }
  } else {
    const int word = thread % kRingWords;
#pragma unroll 4
    for (int at = thread / kRingWords; at < kRingColumns; at += kRingCopiers / kRingWords) {
      const bool exists = at < columns && word < words;
      copy_async_4(stage + ring_place(at, word),
                   exists ? from + static_cast<int64_t>(at) * plan.words + word : a.w,
                   exists ? 4 : 0);
    }
  }
}

// Counts the set bits of a column in a stage.
__device__ __forceinline__ int count_column(const uint32_t* stage, int column) {
  int count = 0;
#pragma unroll
  for (int word = 0; word < kRingWords; word += 4) {
    const uint4 v = *reinterpret_cast<const uint4*>(stage + ring_place(column, word));
    count += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
  }
  return count;
}

// Role of the copying warps: fills stages as they become free and, a few stages behind, builds the
// column tables.
template <bool kBulk>
__device__ __forceinline__ void copy_weights(RingShared& shared, const BmmArgs& a,
                                             const CUtensorMap& w_map, const RingPlan& plan,
                                             int64_t stages, int thread) {
  constexpr int kLag = kRingStages - 2;
  const int lane = thread % kWarp;
  RingWalk copied{static_cast<int>(blockIdx.y)}, counted = copied;
  RingCursor table_turn;
  ColumnEntry entry{};
  int count = 0;
  for (int64_t i = 0; i < stages + kLag; ++i) {
    if (i < stages) {
      const int at = copied.turn.at;
      const uint32_t full = shared_address(&shared.full[at]);
      if (!kBulk || thread == 0)
        barrier_wait(shared_address(&shared.empty[at]), copied.turn.phase ^ 1);
      if constexpr (!kBulk) {
        copy_stage(shared.stages[at], a, plan, int64_t{copied.pass} * kRingColumns, copied.block,
                   thread);
        barrier_arrive_copied(full);
      } else if (thread == 0) {
        barrier_expect(full, sizeof(shared.stages[at]));
        copy_tile(shared_address(shared.stages[at]), w_map, copied.block * kRingWords,
                  copied.pass * kRingColumns, full);
      }
      copied.advance(plan);
    }
    if (i < kLag) continue;
    const int at = counted.turn.at;
    if (counted.block == 0) {
      entry = load_column<BmmOutput::kBits>(a, int64_t{counted.pass} * kRingColumns + thread);
      count = 0;
    }
    barrier_wait(shared_address(&shared.full[at]), counted.turn.phase);
    count += count_column(shared.stages[at], thread);
    arrive_warp(shared.empty[at], lane);
    if (counted.block == plan.blocks - 1) {
      barrier_wait(shared_address(&shared.table_empty[table_turn.at]), table_turn.phase ^ 1);
      ColumnTable<kRingColumns>& table = shared.tables[table_turn.at];
      share_column<BmmOutput::kBits>(table, thread, entry);
      table.term[thread] = plan.output == BmmOutput::kSigns ? column_term<BmmOutput::kSigns>(count)
                                                            : column_term<BmmOutput::kBits>(count);
      arrive_warp(shared.table_full[table_turn.at], lane);
      table_turn.advance(2);
    }
    counted.advance(plan);
  }
}

template <bool kScale, class Source>
__device__ __forceinline__ void pack_ring_rows(RingShared& shared, uint32_t* words,
                                               const Source& source, const PackArgs& pack,
                                               const BmmArgs& a, const RingPlan& plan, int thread) {
  constexpr int kShortWords = 8;
  constexpr int kTogether = sizeof(typename Source::Value) > sizeof(float) ? 2 : 4;
  constexpr int kWarps = kRingPackers / kWarp;
  const int warp = thread / kWarp;
  const int lane = thread % kWarp;
  RingCursor turn;
  for (int64_t tile = blockIdx.x; tile < plan.tiles; tile += gridDim.x) {
    const int64_t first_row = tile * kRingRows;
    const RingRows rows{words + turn.at * plan.blocks * kRingBlockWords};
    const PackedTerms terms{kRingRows, shared.counts[turn.at], shared.scales[turn.at], nullptr};
    barrier_wait(shared_address(&shared.rows_empty[turn.at]), turn.phase ^ 1);
    if (plan.words >= kShortWords)
      pack_tile<kTogether, kShortWords, kScale>(source, pack, rows, terms, first_row, a.rows, 0,
                                                plan.words, warp, kWarps, lane);
    else
      pack_tile<8, 1, kScale>(source, pack, rows, terms, first_row, a.rows, 0, plan.words, warp,
                              kWarps, lane);
    wgmma_write_fence();
    arrive_warp(shared.rows_full[turn.at], lane);
    turn.advance(plan.buffers);
  }
}

#endif

}  // namespace bitgnn::cuda::bmm
