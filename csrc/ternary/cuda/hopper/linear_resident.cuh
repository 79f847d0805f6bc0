// Hopper product of very many ternary rows with +-1 weights resident in shared memory: a block
// holds all bits of its columns and streams planes of rows past them, 64 rows at a time. Three
// warpgroups take turns: one multiplies while the others run their epilogues, which take longer.
// The warpgroup that consumed a stage issues the copy that refills it.
//   acc = popc(w & pos) + popc(w & ~neg),  dot = 2 * (acc - |w|) - (|pos| - |neg|).
// Bound by the products and by the packing kernel before them.
#pragma once

#include <algorithm>

#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/hopper/async_copy.cuh"
#include "core/cuda/hopper/wgmma_b1.cuh"
#include "ternary/cuda/hopper/linear_resident_store.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kResidentGroups = 3;  // warpgroups per block
constexpr int kResidentThreads = kResidentGroups * 128;
constexpr int kResidentStageBytes = 2 * kWgmmaRows * kSwizzleBytes;     // both planes of 64 rows
constexpr int kResidentWeightBytes = kResidentColumns * kSwizzleBytes;  // 1024 bits per column
constexpr int kResidentMostStages = 6;
constexpr int kResidentMostChunks = 6;
constexpr int kResidentAhead = 2;  // chunks of weights copied before the rows are ready

struct ResidentPlan {
  int words;                   // per plane of a row
  int chunks;                  // of 1024 bits
  int stages;                  // in the ring of row planes
  int lanes;                   // blocks that share columns
  int row_blocks;              // of 64 rows
  const int32_t* differences;  // [rows], |pos| - |neg|
};

// Shared memory after the weights and the stages.
struct ResidentShared {
  // Epilogue terms of the columns; term is the bits of the float 1.5 * 2^23, minus 2 |w|.
  alignas(16) int32_t term[kResidentColumns];
  alignas(16) float scale[kResidentColumns];
  alignas(16) float bias[kResidentColumns];
  uint64_t full[kResidentMostStages];
  uint64_t weights[kResidentMostChunks];
  uint64_t terms;
};

// Layout of the grid and of shared memory.
struct Residence {
  int64_t chunks;
  int64_t slabs;       // of columns
  int64_t row_blocks;  // of 64 rows
  int64_t stages;
  int64_t lanes = 0;  // blocks that share columns; 0 if the weights do not fit

  Residence(const TernaryBmmArgs& a, const Context& context)
      : chunks(ceil_div(words_for(a.size), kSwizzleWords)),
        slabs(ceil_div(a.out_features, kResidentColumns)),
        row_blocks(ceil_div(a.rows, kWgmmaRows)) {
    constexpr int64_t kLeastStages = 3;
    const int64_t left = context.device.shared_bytes - shared_bytes(0);
    stages = std::min<int64_t>(left / kResidentStageBytes, kResidentMostStages);
    if (chunks <= kResidentMostChunks && stages >= kLeastStages)
      lanes = std::min(context.device.sm_count / slabs, row_blocks);
  }

  int64_t shared_bytes(int64_t of_stages) const {
    constexpr int64_t kAlignment = 1024;
    return kAlignment + chunks * kResidentWeightBytes + of_stages * kResidentStageBytes +
           static_cast<int64_t>(sizeof(ResidentShared));
  }
  // Rows processed by the busiest block.
  int64_t longest() const { return ceil_div(row_blocks, lanes) * kWgmmaRows; }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct ResidentRing {
  int stage = 0, phase = 0;
  __device__ __forceinline__ void advance(int count, int stages) {
    stage += count;
    while (stage >= stages) {
      stage -= stages;
      phase ^= 1;
    }
  }
};

// Barrier ids are immediates: with an id in a register the kernel would claim all barriers.
__device__ __forceinline__ void wait_for_turn(int group) {
  constexpr int kThreads = 2 * 128;
  if (group == 0)
    asm volatile("bar.sync 1, %0;\n" ::"n"(kThreads) : "memory");
  else if (group == 1)
    asm volatile("bar.sync 2, %0;\n" ::"n"(kThreads) : "memory");
  else
    asm volatile("bar.sync 3, %0;\n" ::"n"(kThreads) : "memory");
}
__device__ __forceinline__ void give_turn(int group) {
  constexpr int kThreads = 2 * 128;
  if (group == 0)
    asm volatile("bar.arrive 1, %0;\n" ::"n"(kThreads) : "memory");
  else if (group == 1)
    asm volatile("bar.arrive 2, %0;\n" ::"n"(kThreads) : "memory");
  else
    asm volatile("bar.arrive 3, %0;\n" ::"n"(kThreads) : "memory");
}

// Issues a block's TMA copies.
struct ResidentCopies {
  ResidentShared& shared;
  const CUtensorMap& x_map;
  const CUtensorMap& w_map;
  const ResidentPlan& plan;
  uint32_t weights, stages;
  int slab;

  __device__ __forceinline__ void start_weights(int chunk) const {
    const uint32_t full = shared_address(&shared.weights[chunk]);
    barrier_expect(full, kResidentWeightBytes);
    copy_weights_tile(weights + chunk * kResidentWeightBytes, w_map, chunk * kSwizzleWords,
                      slab * (kResidentColumns / 32), full);
  }
  __device__ __forceinline__ void start_rows(int stage, int block, int chunk) const {
    const uint32_t full = shared_address(&shared.full[stage]);
    const uint32_t to = stages + stage * kResidentStageBytes;
    const int word = chunk * kSwizzleWords, row = block * kWgmmaRows;
    barrier_expect(full, kResidentStageBytes);
    copy_tile(to, x_map, word, row, full);
    copy_tile(to + kWgmmaRows * kSwizzleBytes, x_map, plan.words + word, row, full);
  }
  // The first weights are copied before the wait for the packing kernel, which does not write them.
  // The rest are interleaved with the rows: they would delay the first rows if packing ends late.
  __device__ __forceinline__ void start_first(int first) const {
    const int ahead = min(plan.chunks, kResidentAhead);
    for (int chunk = 0; chunk < ahead; ++chunk) start_weights(chunk);
    wait_for_previous();
    int block = first, chunk = 0;
    for (int i = 0; i < plan.stages || i < plan.chunks; ++i) {
      if (i >= ahead && i < plan.chunks) start_weights(i);
      if (i < plan.stages && block < plan.row_blocks) start_rows(i, block, chunk);
      if (++chunk == plan.chunks) {
        chunk = 0;
        block += plan.lanes;
      }
    }
  }
};

// Computes the epilogue terms of the block's columns; done by the warpgroup whose turn comes last.
__device__ __forceinline__ void make_terms(ResidentShared& shared, uint32_t weights,
                                           const TernaryBmmArgs& a, const ResidentPlan& plan,
                                           int slab, int thread) {
  constexpr int kOwn = kResidentColumns / 128;
  int count[kOwn] = {};
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    barrier_wait(shared_address(&shared.weights[chunk]), 0);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      // Columns are stored in accumulator order; see encode_weights().
      const int column = thread + i * 128;
      const int place = column / 32 * 32 + column / 2 % 4 * 8 + column / 8 % 4 * 2 + column % 2;
      const uint32_t bits = weights + chunk * kResidentWeightBytes + place * kSwizzleBytes;
#pragma unroll
      for (int k = 0; k < kSwizzleBytes / 16; ++k) {
        const uint4 v = load_shared(bits + (k + thread) % 8 * 16);
        count[i] += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int column = thread + i * 128;
    LoadedTerms loaded;
    loaded.load(a, min(static_cast<int64_t>(slab) * kResidentColumns + column, a.out_features - 1));
    const TernaryTerms terms = loaded.terms();
    shared.term[column] = 0x4b400000 - 2 * count[i];
    shared.scale[column] = terms.scale;
    shared.bias[column] = terms.bias;
  }
  barrier_arrive(shared_address(&shared.terms));
}

template <class T>
__device__ __forceinline__ void consume_resident(const ResidentCopies& copies,
                                                 const TernaryBmmArgs& a, int first, int group) {
  ResidentShared& shared = copies.shared;
  const ResidentPlan& plan = copies.plan;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int warp = thread / kWarp, lane = thread % kWarp;
  ResidentRing at;
  at.advance(group * plan.chunks, plan.stages);
  // The row block and chunk that refill the stage this group has just consumed.
  int next = group * plan.chunks + plan.stages;
  int next_block = first + next / plan.chunks * plan.lanes;
  next %= plan.chunks;
  bool begun = false;
  for (int block = first + group * plan.lanes; block < plan.row_blocks;
       block += kResidentGroups * plan.lanes) {
    const int64_t row = static_cast<int64_t>(block) * kWgmmaRows + warp * kMmaRows;
    int32_t sum[kResidentColumns / 2];
    int32_t difference[2];
    int before = 0;
    const auto refill = [&] {
      if (thread == 0 && next_block < plan.row_blocks) copies.start_rows(before, next_block, next);
      if (++next == plan.chunks) {
        next = 0;
        next_block += plan.lanes;
      }
    };
    // In turn: a group that overtook another would mistake a stage's previous contents for its own.
    if (block != first) wait_for_turn(group);
#pragma unroll 1
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      barrier_wait(shared_address(&shared.full[at.stage]), at.phase);
      if (!begun) barrier_wait(shared_address(&shared.weights[chunk]), 0);
      if (chunk + 1 == plan.chunks && block + plan.lanes < plan.row_blocks)
        give_turn(group + 1 == kResidentGroups ? 0 : group + 1);
      const uint64_t pos = wgmma_descriptor(copies.stages + at.stage * kResidentStageBytes);
      const uint64_t neg = pos + (kWgmmaRows * kSwizzleBytes >> 4);
      const uint64_t w = wgmma_descriptor(copies.weights) +
                         static_cast<uint64_t>(chunk * (kResidentWeightBytes >> 4));
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kWgmmaSteps; ++step) {
        wgmma_and_popc(sum, pos + step * kWgmmaAdvance, w + step * kWgmmaAdvance,
                       chunk != 0 || step != 0);
        wgmma_and_popc(sum, neg + step * kWgmmaAdvance, w + step * kWgmmaAdvance, true);
      }
      wgmma_commit();
      if (chunk == 0) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
          difference[r] =
              load_in_place(plan.differences + min(row + fragment_group(lane) + r * 8, a.rows - 1));
      } else {
        wgmma_wait<1>();
        refill();
      }
      before = at.stage;
      at.advance(1, plan.stages);
    }
    wgmma_wait<0>();
    refill();
    next_block += (kResidentGroups - 1) * plan.lanes;
#pragma unroll
    for (int32_t& x : sum) asm volatile("" : "+r"(x)::"memory");
    if (!begun) barrier_wait(shared_address(&shared.terms), 0);
    begun = true;
    // Late, so that the next kernel's blocks do not crowd onto the SMs that finish first.
    if (block + plan.lanes >= plan.row_blocks) let_next_start();
    store_resident<T>(shared_address(shared.term), a, sum, difference, row,
                      static_cast<int64_t>(copies.slab) * kResidentColumns, lane);
    at.advance((kResidentGroups - 1) * plan.chunks, plan.stages);
  }
}

#endif

template <class T>
__global__ void __launch_bounds__(kResidentThreads, 1)
    ternary_resident_kernel(const TernaryBmmArgs a, const __grid_constant__ CUtensorMap x_map,
                            const __grid_constant__ CUtensorMap w_map, const ResidentPlan plan) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  unsigned char* const weights = memory + (-shared_address(memory) & 1023);
  unsigned char* const stages = weights + plan.chunks * kResidentWeightBytes;
  auto& shared = *reinterpret_cast<ResidentShared*>(stages + plan.stages * kResidentStageBytes);
  const int slab = static_cast<int>(blockIdx.x) / plan.lanes;
  const int first = static_cast<int>(blockIdx.x) - slab * plan.lanes;
  const int group = static_cast<int>(threadIdx.x) / 128;
  const ResidentCopies copies{
      shared, x_map, w_map, plan, shared_address(weights), shared_address(stages), slab};
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int i = 0; i < plan.stages; ++i) barrier_init(shared_address(&shared.full[i]), 1);
#pragma unroll 1
    for (int i = 0; i < plan.chunks; ++i) barrier_init(shared_address(&shared.weights[i]), 1);
    barrier_init(shared_address(&shared.terms), 128);
    barrier_init_fence();
    prefetch_map(x_map);
    prefetch_map(w_map);
  }
  __syncthreads();
  if (threadIdx.x == 0) copies.start_first(first);
  if (group == kResidentGroups - 1)
    make_terms(shared, copies.weights, a, plan, slab, static_cast<int>(threadIdx.x) % 128);
  wait_for_previous();
  consume_resident<T>(copies, a, first, group);
#endif
}

}  // namespace bitgnn::cuda::ternary
