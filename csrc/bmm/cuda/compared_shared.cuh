// Bit outputs of short packed rows as signs of agreement counts: the weights stay in shared memory,
// and each warp streams slabs of 32 rows, whose words are MMA fragments as loaded. Bound by the
// tensor cores.
#pragma once

#include <algorithm>

#include "bmm/arguments.h"
#include "bmm/cuda/agreements.cuh"
#include "bmm/cuda/epilogue.cuh"
#include "bmm/cuda/short_rows.cuh"
#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/shared_memory.h"

namespace bitgnn::cuda::bmm {

constexpr int kShortTiles = 2;  // tiles of 16 rows per slab
constexpr int kShortRows = kShortTiles * kMmaRows;
constexpr int kShortThreads = 256;
constexpr int kShortMostSteps = 2;  // of 256 bits

// Shared-memory layout of a block: the column table, then the weights.
struct ShortPlan {
  int words;  // of a row
  int passes;
  int pitch;     // of a weight row, in words
  bool vectors;  // rows are whole 16-byte units
  int64_t slabs;

  // Divides in 32 bits, which suits_compared() makes sufficient.
  __device__ int64_t slab_of(int64_t unit) const {
    return static_cast<uint32_t>(unit) / static_cast<uint32_t>(passes);
  }
  __host__ __device__ int columns() const { return passes * kAgreementColumns; }
  __host__ __device__ int64_t bytes() const {
    return (AgreementTable::words(columns()) + int64_t{columns()} * pitch) * 4;
  }
};

// The lane's words of the four rows g + 8 i. The weights use the same word order.
template <int kSteps>
using ShortWords = ShortRow<kSteps>[2 * kShortTiles];

template <int kSteps>
__device__ __forceinline__ void load_short_slab(ShortWords<kSteps>& x, const BmmArgs& a,
                                                const ShortPlan& plan, int64_t slab, int lane) {
  const int64_t row = slab * kShortRows + fragment_group(lane);
#pragma unroll
  for (int i = 0; i < 2 * kShortTiles; ++i)
    load_short_row<kSteps>(x[i], a.x + min(row + i * (kMmaRows / 2), a.rows - 1) * plan.words,
                           plan.words, plan.vectors, fragment_quad(lane));
}

// Copies the weights in the word order of the rows, with zeros past each row and in missing rows; a
// thread copies four words at once.
template <int kSteps>
__device__ __forceinline__ void load_short_weights(uint32_t* to, const BmmArgs& a,
                                                   const ShortPlan& plan) {
  constexpr int kGroups = kSteps * kMmaWords / kShortGroup;
#pragma unroll 4
  for (int i = threadIdx.x; i < plan.columns() * kGroups; i += kShortThreads) {
    const int column = i / kGroups, group = i % kGroups;
    const int first = group * kShortGroup;
    const int existing = column < a.out_features ? plan.words - first : 0;
    const int32_t* from = a.w + static_cast<int64_t>(column) * plan.words + first;
    uint32_t word[kShortGroup];
#pragma unroll
    for (int k = 0; k < kShortGroup; ++k)
      word[k] = k < existing ? static_cast<uint32_t>(__ldg(from + k)) : 0u;
    // Lane q's words 0 and 1 of a step are the fragment's words q and q + 4.
    uint32_t* row = to + column * plan.pitch;
    if (kSteps % 2 == 0 || group < 2 * (kSteps - 1)) {
      row += group / 4 * (2 * kMmaWords) + group % 4;
      row[0] = word[0];
      row[4] = word[1];
      row[kMmaWords] = word[2];
      row[kMmaWords + 4] = word[3];
    } else {
      row += (kSteps - 1) * kMmaWords + group % 2 * 2;
      row[0] = word[0];
      row[4] = word[1];
      row[1] = word[2];
      row[5] = word[3];
    }
  }
}

template <bool kSame, int kSteps>
__global__ void __launch_bounds__(kShortThreads, 2)
    bmm_compared_short_kernel(const BmmArgs a, const ShortPlan plan) {
  constexpr int kWarps = kShortThreads / kWarp;
  constexpr int kWidth = kSteps * kMmaWords * kWordBits;
  extern __shared__ __align__(16) uint32_t memory[];
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int columns = plan.columns();
  const AgreementTable table = agreement_table(memory, columns);
  uint32_t* weights = memory + AgreementTable::words(columns);

  let_next_start();
  wait_for_previous();
  // Each unit is one pass over a slab, so that many warps share the work evenly.
  const int64_t units = plan.slabs * plan.passes;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps;
  int64_t unit = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  ShortWords<kSteps> words;
  load_short_slab<kSteps>(words, a, plan, plan.slab_of(unit), lane);
  load_short_weights<kSteps>(weights, a, plan);
  set_agreements(table, a, columns, kWidth, kShortThreads, lane);
  __syncthreads();

  const uint32_t w = column_fragments_address(weights, plan.pitch, lane);
  const auto pair_bytes = static_cast<uint32_t>(plan.pitch) * 2 * kMmaColumns * 4;
  const int quad = fragment_quad(lane);
  const int32_t same_start = agreement_start(a, 0, kWidth);
  for (; unit < units; unit += stride) {
    const int64_t slab = plan.slab_of(unit);
    const int pass = static_cast<int>(unit - slab * plan.passes);
    const uint32_t columns_at = w + pass * (kAgreementColumns / (2 * kMmaColumns)) * pair_bytes;
    const auto* starts = reinterpret_cast<const int4*>(table.starts + pass * kAgreementColumns);
    ShortWords<kSteps> next;
    load_short_slab<kSteps>(next, a, plan, plan.slab_of(unit + stride), lane);
    AgreementSums<kShortTiles> sum;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t x[kShortTiles][4];
#pragma unroll
      for (int i = 0; i < kShortTiles; ++i) {
#pragma unroll
        for (int k = 0; k < 4; ++k) x[i][k] = words[2 * i + k % 2][2 * step + k / 2];
      }
      const uint32_t at = columns_at + step * kMmaWords * 4;
      if (step == 0)
        add_agreements<kSame, true, kShortTiles>(sum, x, at, pair_bytes, same_start, starts, quad);
      else
        add_agreements<kSame, false, kShortTiles>(sum, x, at, pair_bytes, 0, starts, quad);
    }
    const uint2 bits = gather_words(collect_signs(sum[0]), collect_signs(sum[1]), quad);
    const int64_t row = slab * kShortRows + fragment_group(lane) + quad * 8;
    if (row < a.rows) store_agreements(a, table, bits, row, pass);
#pragma unroll
    for (int i = 0; i < 2 * kShortTiles; ++i) {
#pragma unroll
      for (int k = 0; k < 2 * kSteps; ++k) words[i][k] = next[i][k];
    }
  }
}

template <int kSteps>
ShortPlan short_plan(const BmmArgs& args) {
  ShortPlan plan{};
  plan.words = static_cast<int>(words_for(args.size));
  plan.passes = static_cast<int>(ceil_div(args.out_features, kAgreementColumns));
  plan.pitch = tile_pitch(kSteps * kMmaWords);
  plan.vectors = plan.words % kShortGroup == 0;
  plan.slabs = ceil_div(args.rows, kShortRows);
  return plan;
}

template <bool kSame, int kSteps>
cudaError_t launch_compared_short(const BmmArgs& args, const Context& context) {
  const ShortPlan plan = short_plan<kSteps>(args);
  const auto kernel = bmm_compared_short_kernel<kSame, kSteps>;
  const auto bytes = static_cast<size_t>(plan.bytes());
  cudaError_t status = grant_shared_memory(kernel, plan.bytes());
  if (status != cudaSuccess) return status;
  int resident = 0;
  status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kShortThreads, bytes);
  if (status != cudaSuccess) return status;
  if (resident == 0) return cudaErrorInvalidConfiguration;
  const int64_t blocks = std::min(ceil_div(plan.slabs * plan.passes, kShortThreads / kWarp),
                                  int64_t{resident} * context.device.sm_count);
  return launch_dependent(kernel, grid_size(blocks), kShortThreads, bytes, context, args, plan);
}

}  // namespace bitgnn::cuda::bmm
