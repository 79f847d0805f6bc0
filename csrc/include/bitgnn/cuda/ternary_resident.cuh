// Hopper's product of very many ternary rows with +-1 weights that stay in shared memory: a block
// keeps all bits of its columns and streams planes of rows past them, 64 rows at a time. Two
// warpgroups take turns: one multiplies while the other turns sums into values and stores them.
//   acc = popc(w & pos) + popc(w & ~neg),  dot = 2 * (acc - |w|) - (|pos| - |neg|).
// Bound by storing: turning a tile's sums into values and writing them takes the longer half.
#pragma once

#include "bitgnn/cuda/async_copy.cuh"
#include "bitgnn/cuda/dependent_launch.cuh"
#include "bitgnn/cuda/ternary_resident_store.cuh"
#include "bitgnn/cuda/wgmma_b1.cuh"

namespace bitgnn::cuda {

constexpr int kResidentGroups = 2;
constexpr int kResidentThreads = kResidentGroups * 128 + kWarp;  // and a warp that starts copies
constexpr int kResidentStageBytes = 2 * kWgmmaRows * kSwizzleBytes;     // both planes of 64 rows
constexpr int kResidentWeightBytes = kResidentColumns * kSwizzleBytes;  // 1024 bits of each
constexpr int kResidentMostStages = 6;
constexpr int kResidentMostChunks = 6;

struct ResidentPlan {
  int words;                   // of a row's plane
  int chunks;                  // of 1024 bits
  int stages;                  // of rows' planes
  int lanes;                   // blocks that share columns
  int row_blocks;              // of 64 rows
  const int32_t* differences;  // [rows], |pos| - |neg|
};

// Behind the weights and the stages.
struct ResidentShared {
  // Of the columns: 1.5 * 2^23 - 2 |w| as the bits of a float, what multiplies, what is added.
  alignas(16) int32_t term[kResidentColumns];
  alignas(16) float scale[kResidentColumns];
  alignas(16) float bias[kResidentColumns];
  uint64_t full[kResidentMostStages];
  uint64_t empty[kResidentMostStages];
  uint64_t weights[kResidentMostChunks];
  uint64_t terms;
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

// The number of a barrier is part of the instruction: any other would claim all of them.
__device__ __forceinline__ void wait_for_turn(int group) {
  if (group == 0)
    asm volatile("bar.sync 1, %0;\n" ::"n"(kResidentGroups * 128) : "memory");
  else
    asm volatile("bar.sync 2, %0;\n" ::"n"(kResidentGroups * 128) : "memory");
}
__device__ __forceinline__ void give_turn(int group) {
  if (group == 0)
    asm volatile("bar.arrive 1, %0;\n" ::"n"(kResidentGroups * 128) : "memory");
  else
    asm volatile("bar.arrive 2, %0;\n" ::"n"(kResidentGroups * 128) : "memory");
}

// Weights come before the rows are ready: they were before the packing began.
__device__ __forceinline__ void produce_resident(ResidentShared& shared, uint32_t weights,
                                                 uint32_t stages, const CUtensorMap& x_map,
                                                 const CUtensorMap& w_map, const ResidentPlan& plan,
                                                 int slab, int first) {
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    const uint32_t full = shared_address(&shared.weights[chunk]);
    barrier_expect(full, kResidentWeightBytes);
    copy_weights_tile(weights + chunk * kResidentWeightBytes, w_map, chunk * kSwizzleWords,
                      slab * (kResidentColumns / 32), full);
  }
  wait_for_previous();
  ResidentRing at;
  for (int block = first; block < plan.row_blocks; block += plan.lanes) {
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      barrier_wait(shared_address(&shared.empty[at.stage]), at.phase ^ 1);
      const uint32_t full = shared_address(&shared.full[at.stage]);
      const uint32_t stage = stages + at.stage * kResidentStageBytes;
      const int word = chunk * kSwizzleWords, row = block * kWgmmaRows;
      barrier_expect(full, kResidentStageBytes);
      copy_tile(stage, x_map, word, row, full);
      copy_tile(stage + kWgmmaRows * kSwizzleBytes, x_map, plan.words + word, row, full);
      at.advance(1, plan.stages);
    }
  }
}

// The terms of the block's columns, by the group that waits for its turn first.
__device__ __forceinline__ void make_terms(ResidentShared& shared, uint32_t weights,
                                           const TernaryBmmArgs& a, const ResidentPlan& plan,
                                           int slab, int thread) {
  constexpr int kOwn = kResidentColumns / 128;
  int count[kOwn] = {};
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    barrier_wait(shared_address(&shared.weights[chunk]), 0);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      // Columns lie in the order of the accumulators: see encode_weights().
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

__device__ __forceinline__ void consume_resident(ResidentShared& shared, uint32_t weights,
                                                 uint32_t stages, const TernaryBmmArgs& a,
                                                 const ResidentPlan& plan, int slab, int first,
                                                 int group) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int warp = thread / kWarp, lane = thread % kWarp;
  const int64_t column = static_cast<int64_t>(slab) * kResidentColumns;
  ResidentRing at;
  at.advance(group * plan.chunks, plan.stages);
  bool begun = false;
  for (int block = first + group * plan.lanes; block < plan.row_blocks;
       block += kResidentGroups * plan.lanes) {
    const int64_t row = static_cast<int64_t>(block) * kWgmmaRows + warp * kMmaRows;
    int32_t sum[kResidentColumns / 2];
    int32_t difference[2];
    int before = 0;
    // In turn: a group that overtook the other would take a stage's last use for its own.
    if (block != first) wait_for_turn(group);
#pragma unroll 1
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      barrier_wait(shared_address(&shared.full[at.stage]), at.phase);
      if (!begun) barrier_wait(shared_address(&shared.weights[chunk]), 0);
      if (chunk + 1 == plan.chunks && block + plan.lanes < plan.row_blocks) give_turn(1 - group);
      const uint64_t pos = wgmma_descriptor(stages + at.stage * kResidentStageBytes);
      const uint64_t neg = pos + (kWgmmaRows * kSwizzleBytes >> 4);
      const uint64_t w =
          wgmma_descriptor(weights) + static_cast<uint64_t>(chunk * (kResidentWeightBytes >> 4));
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
        if (thread == 0) barrier_arrive(shared_address(&shared.empty[before]));
      }
      before = at.stage;
      at.advance(1, plan.stages);
    }
    wgmma_wait<0>();
    if (thread == 0) barrier_arrive(shared_address(&shared.empty[before]));
#pragma unroll
    for (int32_t& x : sum) asm volatile("" : "+r"(x)::"memory");
    if (!begun) barrier_wait(shared_address(&shared.terms), 0);
    begun = true;
    const uint32_t terms = shared_address(shared.term);
    switch (a.type) {
      case ValueType::kFloat16:
        store_resident<__half>(terms, a, sum, difference, row, column, lane);
        break;
      case ValueType::kFloat32:
        store_resident<float>(terms, a, sum, difference, row, column, lane);
        break;
      case ValueType::kBFloat16:
        store_resident<__nv_bfloat16>(terms, a, sum, difference, row, column, lane);
        break;
      case ValueType::kInt32:
        store_resident<int32_t>(terms, a, sum, difference, row, column, lane);
        break;
    }
    at.advance(plan.chunks, plan.stages);
  }
}

#endif

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
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int i = 0; i < plan.stages; ++i) {
      barrier_init(shared_address(&shared.full[i]), 1);
      barrier_init(shared_address(&shared.empty[i]), 1);
    }
#pragma unroll 1
    for (int i = 0; i < plan.chunks; ++i) barrier_init(shared_address(&shared.weights[i]), 1);
    barrier_init(shared_address(&shared.terms), 128);
    barrier_init_fence();
    prefetch_map(x_map);
    prefetch_map(w_map);
  }
  __syncthreads();
  if (group == kResidentGroups) {
    if (threadIdx.x % kWarp == 0)
      produce_resident(shared, shared_address(weights), shared_address(stages), x_map, w_map, plan,
                       slab, first);
    // Late, so that the next kernel's blocks do not crowd where the first of these end.
    __syncwarp();
    let_next_start();
  } else {
    if (group == kResidentGroups - 1)
      make_terms(shared, shared_address(weights), a, plan, slab,
                 static_cast<int>(threadIdx.x) % 128);
    wait_for_previous();
    consume_resident(shared, shared_address(weights), shared_address(stages), a, plan, slab, first,
                     group);
  }
#endif
}

}  // namespace bitgnn::cuda
