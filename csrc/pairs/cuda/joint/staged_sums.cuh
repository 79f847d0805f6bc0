// First of two launches that add sums of neighbours to products: counts short rows in CSR order and
// stages the counts as bytes. The first blocks search for long rows, which take a warp each, and
// for hubs, whose output bits they write directly. Bound by the latency of gathers.
#pragma once

#include "bmm/arguments.h"
#include "bspmm/arguments.h"
#include "bspmm/cuda/short_rows.cuh"
#include "pairs/cuda/joint/hubs.cuh"
#include "pairs/cuda/joint/staged_counts.cuh"

namespace bitgnn::cuda::pairs {

struct StagedSums {
  AggregateArgs a;
  BmmArgs product;
  StagedCounts staged;
  unsigned long_blocks;
};

__device__ __forceinline__ StagedRow staged_row(const StagedSums& d, int64_t row, int degree) {
  return {d.product.row_scale != nullptr ? __ldg(d.product.row_scale + row) : 1.0f,
          d.a.row_scale != nullptr ? __ldg(d.a.row_scale + row) : 1.0f, degree};
}

// Handles long rows and hubs among every long_blocks-th row from the block's own on.
template <class Short, class Lanes>
__device__ __forceinline__ void stage_long_rows(const StagedSums& d, int most, int64_t chunk) {
  constexpr int kThreads = Short::kThreads, kRowWarps = kThreads / kWarp;
  using LongLanes = bspmm::RowLanes<Lanes::kWords, kWarp / Lanes::kColumns, Lanes::kColumns>;
  static_assert(LongLanes::kSplits * bspmm::kLongUnits > kStagedMost,
                "a warp counts what is no hub");
  __shared__ bspmm::LongRow list[kThreads];
  __shared__ int num_long, num_hubs;
  const bspmm::CsrRows source{d.a};
  const int64_t words = words_for(d.a.features);
  const int thread = static_cast<int>(threadIdx.x);
  const LongLanes lanes(thread % kWarp);
  const int64_t step = static_cast<int64_t>(d.long_blocks) * kThreads;
  for (int64_t base = blockIdx.x; base < d.a.rows; base += step) {
    const int64_t row = base + static_cast<int64_t>(thread) * d.long_blocks;
    const bspmm::RowExtent extent = row < d.a.rows ? source.extent(row) : bspmm::RowExtent{0, 0, 0};
    if (thread == 0) num_long = num_hubs = 0;
    if (!__syncthreads_or(extent.units > most)) continue;
    // Long rows fill the list from the front, hubs from the back.
    if (extent.units > most) {
      const bool hub = extent.units > kStagedMost;
      const int place = atomicAdd(hub ? &num_hubs : &num_long, 1);
      list[hub ? kThreads - 1 - place : place] = {row, extent};
    }
    __syncthreads();
    for (int i = kThreads - num_hubs; i < kThreads; ++i)
      join_hub<Lanes, Short>(source, d.a, d.product, list[i].row, chunk);
    for (int i = thread / kWarp; i < num_long; i += kRowWarps) {
      const bspmm::LongRow& found = list[i];
      bspmm::CountPlanes<Lanes::kWords, bspmm::kLongPlanes> planes;
      planes.clear();
      if (chunk + lanes.word() < words)
        source.template count<Short::kBatch>(planes, found.extent, lanes.split(),
                                             found.extent.units, LongLanes::kSplits,
                                             chunk + lanes.word());
      stage_counts(d.staged, words, lanes, lanes.fold(planes), found.row, chunk);
    }
    __syncthreads();
  }
}

// blockIdx.y selects the block's words of the rows.
template <class Short, class Lanes>
__global__ void __launch_bounds__(Short::kThreads, Short::kBlocks)
    aggregate_staged(const __grid_constant__ StagedSums d) {
  constexpr int kShortUnits = Short::kUnits * Lanes::kSplits;
  static_assert(kShortUnits <= kStagedMost, "short rows are staged");
  const bspmm::CsrRows source{d.a};
  const int64_t chunk = static_cast<int64_t>(blockIdx.y) * Lanes::kRowWords;
  const int64_t words = words_for(d.a.features);
  // What the next kernel reads before it waits was ready before this one.
  wait_for_previous();
  let_next_start();
  if (blockIdx.x < d.long_blocks) {
    stage_long_rows<Short, Lanes>(d, kShortUnits, chunk);
    return;
  }
  const int thread = static_cast<int>(threadIdx.x);
  const Lanes lanes(thread % kWarp);
  const int64_t block = blockIdx.x - d.long_blocks;
  const int64_t row =
      (block * (Short::kThreads / kWarp) + thread / kWarp) * Lanes::kRows + lanes.row();
  const bspmm::RowExtent extent = row < d.a.rows ? source.extent(row) : bspmm::RowExtent{0, 0, 0};
  if (blockIdx.y == 0 && row < d.a.rows && lanes.is_first_of_row())
    d.staged.rows[row] = staged_row(d, row, extent.degree);
  const bool wanted = row < d.a.rows && extent.units <= kShortUnits;
  bspmm::CountPlanes<Lanes::kWords, Short::kPlanes> planes;
  planes.clear();
  if (wanted && chunk + lanes.word() < words)
    source.template count<Short::kBatch>(planes, extent, lanes.split(), extent.units,
                                         Lanes::kSplits, chunk + lanes.word());
  const auto folded = lanes.fold(planes);
  if (wanted) stage_counts(d.staged, words, lanes, folded, row, chunk);
}

template <class Short, class Lanes>
cudaError_t launch_aggregate_staged(StagedSums d, const Context& context) {
  constexpr int kBlockRows = Short::kThreads / kWarp * Lanes::kRows;
  // As many as are resident at once: with more, short rows wait; with fewer, long ones come last.
  d.long_blocks = static_cast<unsigned>(context.device.sm_count * Short::kBlocks);
  const dim3 grid(grid_size(ceil_div(d.a.rows, kBlockRows) + d.long_blocks),
                  grid_size(ceil_div(words_for(d.a.features), Lanes::kRowWords)));
  return launch_dependent(aggregate_staged<Short, Lanes>, grid, Short::kThreads, 0, context, d);
}

}  // namespace bitgnn::cuda::pairs
