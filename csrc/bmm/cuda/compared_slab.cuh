// Bit outputs of packed rows as signs of agreement counts, for rows that are long or more than L2
// holds: the weights and their complements stay in shared memory, and each warp streams slabs of 32
// rows. Bound by reading the rows or by the tensor cores.
#pragma once

#include <algorithm>

#include "bmm/arguments.h"
#include "bmm/cuda/agreements.cuh"
#include "bmm/cuda/epilogue.cuh"
#include "core/cuda/dependent_launch.cuh"

namespace bitgnn::cuda::bmm {

constexpr int kComparedRows = 2 * kMmaRows;  // rows per slab
constexpr int kComparedColumns = kAgreementColumns;
constexpr int kComparedStages = 3;
constexpr int kComparedMostWarps = 8;
constexpr int kComparedLeastWarps = 4;  // fewer leave schedulers of a multiprocessor idle

// Shared-memory layout of a block: the column table, weights, complements, then each warp's stages.
// Sizes are in words.
struct ComparedPlan {
  int words;  // of a row
  int steps;  // of 256 bits
  int passes;
  int pitch;       // of a weight row
  int slab_pitch;  // of a slab row; avoids bank conflicts if rows are whole vectors
  int64_t slabs;

  // Divides in 32 bits, which route.cu makes sufficient.
  __device__ int64_t slab_of(int64_t unit) const {
    return static_cast<uint32_t>(unit) / static_cast<uint32_t>(passes);
  }
  __host__ __device__ int columns() const { return passes * kComparedColumns; }
  // Fragments read past the end of a slab, where zero weights mask the values; the extra words keep
  // these reads out of the next stage, whose copy may be in flight.
  __host__ __device__ int stage_words() const { return kComparedRows * slab_pitch + kMmaWords; }
  __host__ __device__ int64_t bytes(int warps) const {
    return (AgreementTable::words(columns()) + int64_t{columns()} * 2 * pitch +
            int64_t{warps} * kComparedStages * stage_words()) *
           4;
  }
};

// Starts the async copy of a slab; copies nothing past the last one.
__device__ __forceinline__ void load_compared_slab(uint32_t* to, const BmmArgs& a,
                                                   const ComparedPlan& plan, int64_t slab,
                                                   int lane) {
  if (slab < plan.slabs) {
    const int64_t row = slab * kComparedRows;
    const int rows = static_cast<int>(min(int64_t{kComparedRows}, a.rows - row));
    const int32_t* from = a.x + row * plan.words;
    if (plan.slab_pitch == plan.words) {  // contiguous
      const int left = rows * plan.words;
      for (int i = lane * 4; i < left; i += kWarp * 4)
        copy_async_16(to + i, from + i, min(left - i, 4) * 4);
    } else {
      const int vectors = plan.words / 4;
      for (int i = lane; i < rows * vectors; i += kWarp)
        copy_async_16(to + i / vectors * plan.slab_pitch + i % vectors * 4, from + i * 4, 16);
    }
  }
  commit_copies();
}

// Loads the weights and their complements, both zero past each row and in missing rows; a thread
// handles one 256-bit step of a row at a time.
__device__ __forceinline__ void load_both_weights(uint32_t* to, uint32_t* complements,
                                                  const BmmArgs& a, const ComparedPlan& plan) {
  const uint32_t last = last_word_mask(a.size);
  for (int i = threadIdx.x; i < plan.columns() * plan.steps; i += blockDim.x) {
    const int column = i / plan.steps, first = i % plan.steps * kMmaWords;
    const int existing = column < a.out_features ? plan.words - first : 0;
    const int32_t* from = a.w + static_cast<int64_t>(column) * plan.words + first;
    uint32_t bits[kMmaWords], inverse[kMmaWords];
#pragma unroll
    for (int word = 0; word < kMmaWords; ++word)
      bits[word] = word < existing ? static_cast<uint32_t>(__ldg(from + word)) : 0u;
#pragma unroll
    for (int word = 0; word < kMmaWords; ++word) {
      const uint32_t mask = word + 1 < existing ? 0xffffffffu : word < existing ? last : 0u;
      inverse[word] = ~bits[word] & mask;
    }
    const int at = column * plan.pitch + first;
#pragma unroll
    for (int word = 0; word < kMmaWords; word += 4) {
      *reinterpret_cast<uint4*>(to + at + word) =
          make_uint4(bits[word], bits[word + 1], bits[word + 2], bits[word + 3]);
      *reinterpret_cast<uint4*>(complements + at + word) =
          make_uint4(inverse[word], inverse[word + 1], inverse[word + 2], inverse[word + 3]);
    }
  }
}

// Loads the fragment of 16 rows over 256 bits; the fragment of their complements is its inverse.
__device__ __forceinline__ void load_slab_fragment(uint32_t (&x)[4], const uint32_t* low,
                                                   int pitch) {
  x[0] = low[0];
  x[1] = low[8 * pitch];
  x[2] = low[4];
  x[3] = low[8 * pitch + 4];
}

using ComparedSums = int32_t[2][kComparedColumns / kMmaColumns][4];

// Counts the agreements of a slab with the columns of one pass, starting from `start` for all of
// them or, if they differ, from `starts`.
template <bool kSame>
__device__ __forceinline__ void multiply_compared(ComparedSums& sum, const ComparedPlan& plan,
                                                  const uint32_t* slab, int32_t start,
                                                  const int4* starts, uint32_t w,
                                                  uint32_t complement_bytes, int lane) {
  constexpr int kFragments = kComparedColumns / kMmaColumns;
  const uint32_t pair_bytes = static_cast<uint32_t>(plan.pitch) * 2 * kMmaColumns * 4;
  const int quad = fragment_quad(lane);
  const uint32_t* low = slab + fragment_group(lane) * plan.slab_pitch + quad;
#pragma unroll
  for (int j = 0; j < kFragments; ++j) {
    int4 first = make_int4(start, start, start, start);
    if constexpr (!kSame) first = starts[j * 4 + quad];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i][j][0] = first.x;
      sum[i][j][1] = first.y;
      sum[i][j][2] = first.z;
      sum[i][j][3] = first.w;
    }
  }
#pragma unroll 1
  for (int step = 0; step < plan.steps; ++step) {
    uint32_t x[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      load_slab_fragment(x[i], low + i * kMmaRows * plan.slab_pitch, plan.slab_pitch);
    uint32_t address = w;
    // Products into the same sums are kept far apart.
#pragma unroll
    for (int inverse = 0; inverse < 2; ++inverse) {
#pragma unroll
      for (int j = 0; j < kFragments; j += 2) {
        uint32_t b[2][2];
        load_matrices(address + j / 2 * pair_bytes, b[0][0], b[0][1], b[1][0], b[1][1]);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
#pragma unroll
          for (int i = 0; i < 2; ++i) mma_and_popc(sum[i][j + e], x[i], b[e]);
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int k = 0; k < 4; ++k) x[i][k] = ~x[i][k];
      }
      address += complement_bytes;
    }
    low += kMmaWords;
    w += kMmaWords * 4;
  }
}

template <bool kSame>
__global__ void __launch_bounds__(kComparedMostWarps* kWarp, 2)
    bmm_compared_kernel(const BmmArgs a, const ComparedPlan plan) {
  extern __shared__ __align__(16) uint32_t memory[];
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int warps = blockDim.x / kWarp;
  const int columns = plan.columns();
  const AgreementTable table = agreement_table(memory, columns);
  uint32_t* weights = memory + AgreementTable::words(columns);
  uint32_t* complements = weights + columns * plan.pitch;
  uint32_t* stages =
      complements + columns * plan.pitch + warp * kComparedStages * plan.stage_words();

  let_next_start();
  wait_for_previous();
  // Each unit is one pass over a slab, so that many warps share the work evenly.
  const int64_t units = plan.slabs * plan.passes;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * warps;
  int64_t unit = static_cast<int64_t>(blockIdx.x) * warps + warp;
#pragma unroll 1
  for (int s = 0; s < kComparedStages - 1; ++s)
    load_compared_slab(stages + s * plan.stage_words(), a, plan, plan.slab_of(unit + s * stride),
                       lane);
  load_both_weights(weights, complements, a, plan);
  // Complements are masked to the features, so padding never agrees.
  const auto width = static_cast<int>(a.size);
  set_agreements(table, a, columns, width, static_cast<int>(blockDim.x), lane);
  __syncthreads();

  const uint32_t w = column_fragments_address(weights, plan.pitch, lane);
  const auto complement_bytes = static_cast<uint32_t>(columns * plan.pitch) * 4;
  const auto pass_bytes = static_cast<uint32_t>(kComparedColumns * plan.pitch) * 4;
  const int quad = fragment_quad(lane);
  const int32_t same_start = agreement_start(a, 0, width);
  for (int stage = 0; unit < units; unit += stride) {
    const int last = (stage + kComparedStages - 1) % kComparedStages;
    load_compared_slab(stages + last * plan.stage_words(), a, plan,
                       plan.slab_of(unit + (kComparedStages - 1) * stride), lane);
    wait_copies<kComparedStages - 1>();
    __syncwarp();
    const int64_t slab = plan.slab_of(unit);
    const int pass = static_cast<int>(unit - slab * plan.passes);
    ComparedSums sum;
    multiply_compared<kSame>(sum, plan, stages + stage * plan.stage_words(), same_start,
                             reinterpret_cast<const int4*>(table.starts + pass * kComparedColumns),
                             w + pass * pass_bytes, complement_bytes, lane);
    const uint2 words = gather_words(collect_signs(sum[0]), collect_signs(sum[1]), quad);
    const int64_t row = slab * kComparedRows + fragment_group(lane) + quad * 8;
    if (row < a.rows) store_agreements(a, table, words, row, pass);
    __syncwarp();
    stage = (stage + 1) % kComparedStages;
  }
}

inline ComparedPlan compared_plan(const BmmArgs& args) {
  ComparedPlan plan{};
  plan.words = static_cast<int>(words_for(args.size));
  plan.steps = static_cast<int>(ceil_div(plan.words, kMmaWords));
  plan.passes = static_cast<int>(ceil_div(args.out_features, kComparedColumns));
  plan.pitch = tile_pitch(plan.steps * kMmaWords);
  plan.slab_pitch = plan.words % 4 == 0 ? tile_pitch(plan.words) : plan.words;
  plan.slabs = ceil_div(args.rows, kComparedRows);
  return plan;
}

}  // namespace bitgnn::cuda::bmm
