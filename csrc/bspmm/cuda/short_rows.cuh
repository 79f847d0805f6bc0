// Sums of mostly short rows in CSR order: the first blocks search for long rows, which take a warp
// or the whole block each, while all other blocks sum short rows, a few lanes each, and never wait.
// Bound by the gathers of packed rows and, if those are few, by instructions.
#pragma once

#include "bspmm/arguments.h"
#include "bspmm/cuda/bits.cuh"
#include "core/cuda/dependent_launch.cuh"

namespace bitgnn::cuda::bspmm {

constexpr int64_t kSpreadRows = 1 << 15;  // rows from which searching for long ones pays

// Sums rows of more than `most` units among every num_blocks-th one from the block's own on.
template <class Short, int kWords, int kColumns, class Source>
__device__ __forceinline__ void spread_long_rows(const Source& source, int most,
                                                 unsigned num_blocks, int64_t chunk) {
  constexpr int kThreads = Short::kThreads, kRowWarps = kThreads / kWarp;
  constexpr int kHubUnits = hub_units(kColumns);
  __shared__ LongRow list[kThreads];
  __shared__ int num_long, num_hubs;
  __shared__ int counts[kWords * kColumns * kWarp];
  const AggregateArgs& a = source.a;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t step = static_cast<int64_t>(num_blocks) * kThreads;
  for (int64_t base = blockIdx.x; base < a.rows; base += step) {
    const int64_t row = base + static_cast<int64_t>(thread) * num_blocks;
    const RowExtent extent = row < a.rows ? source.extent(row) : RowExtent{0, 0, 0};
    if (thread == 0) num_long = num_hubs = 0;
    if (!__syncthreads_or(extent.units > most)) continue;
    // Long rows fill the list from the front, hubs from the back.
    if (extent.units > most) {
      const bool hub = extent.units > kHubUnits;
      const int place = atomicAdd(hub ? &num_hubs : &num_long, 1);
      list[hub ? kThreads - 1 - place : place] = {row, extent};
    }
    __syncthreads();
    for (int i = kThreads - num_hubs; i < kThreads; ++i)
      add_hub<Short::kBatch, kWords, kColumns, kThreads>(source, a, list[i], counts, chunk);
    for (int i = thread / kWarp; i < num_long; i += kRowWarps)
      add_long_row<Short::kBatch, kWords, kColumns>(source, a, list[i], chunk);
    __syncthreads();
  }
}

template <class Source, class Short, int kWords, int kSplits, int kColumns>
__global__ void __launch_bounds__(Short::kThreads, Short::kBlocks)
    aggregate_spread(const __grid_constant__ Source source, unsigned long_blocks) {
  using Lanes = RowLanes<kWords, kSplits, kColumns>;
  constexpr int kShortUnits = Short::kUnits * kSplits;
  const AggregateArgs& a = source.a;
  const int64_t chunk = static_cast<int64_t>(blockIdx.y) * Lanes::kRowWords;
  let_next_start();
  wait_for_previous();
  if (blockIdx.x < long_blocks) {
    spread_long_rows<Short, kWords, kColumns>(source, kShortUnits, long_blocks, chunk);
    return;
  }
  const int thread = static_cast<int>(threadIdx.x);
  const Lanes lanes(thread % kWarp);
  const int64_t block = blockIdx.x - long_blocks;
  const int64_t row =
      (block * (Short::kThreads / kWarp) + thread / kWarp) * Lanes::kRows + lanes.row();
  const RowExtent extent = row < a.rows ? source.extent(row) : RowExtent{0, 0, 0};
  const bool wanted = row < a.rows && extent.units <= kShortUnits;
  const float scale = row_factor(a, row, wanted);
  CountPlanes<kWords, sum_planes<Source, Short::kUnits, Short::kPlanes>()> planes;
  planes.clear();
  if (wanted && chunk + lanes.word() < words_for(a.features))
    source.template count<Short::kBatch>(planes, extent, lanes.split(), extent.units, kSplits,
                                         chunk + lanes.word());
  finish_planes<Lanes, Source::kHalved>(a, source.bounds, lanes, lanes.fold(planes), row, scale,
                                        extent.degree, wanted, chunk);
}

template <class Short, int kWords, int kSplits, int kColumns, class Source>
cudaError_t launch_spread(const Source& source, const Context& context) {
  using Lanes = RowLanes<kWords, kSplits, kColumns>;
  constexpr int kBlockRows = Short::kThreads / kWarp * Lanes::kRows;
  // As many as are resident at once: with more, short rows wait; with fewer, long ones come last.
  const auto long_blocks = static_cast<unsigned>(context.device.sm_count * Short::kBlocks);
  const AggregateArgs& args = source.a;
  if (args.rows == 0 || args.features == 0) return cudaSuccess;
  const dim3 grid(grid_size(ceil_div(args.rows, kBlockRows) + long_blocks),
                  grid_size(ceil_div(words_for(args.features), Lanes::kRowWords)));
  return launch_dependent(aggregate_spread<Source, Short, kWords, kSplits, kColumns>, grid,
                          Short::kThreads, 0, context, source, long_blocks);
}

}  // namespace bitgnn::cuda::bspmm
