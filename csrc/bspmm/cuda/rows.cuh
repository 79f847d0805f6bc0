// Sums rows of any length in one launch: a few lanes for short rows, a warp for long ones, the
// whole block for hubs.
//
// A row's words are spread over kColumns lanes of kWords words each, its neighbours over the
// remaining lanes that share it. Every lane counts its neighbours in bit planes; the lanes of a row
// add their planes with shuffles, each keeping part of the words, and finish them. A block first
// sums its short rows with kSplits * kColumns lanes per row, then shares the long ones it met among
// its warps, and finally sums hubs with integer counts in shared memory, so that no row keeps one
// lane busy for long. Bound by the gathers of packed rows.
#pragma once

#include "bspmm/arguments.h"
#include "bspmm/cuda/finish.cuh"

namespace bitgnn::cuda::bspmm {

constexpr int kLongUnits = 32;  // units per lane of a long row or a hub
constexpr int kLongPlanes = 6;  // planes that count them

// Units beyond which a row is a hub: half of what a warp counts at once.
constexpr int hub_units(int columns) { return kLongUnits / 2 * (kWarp / columns); }

__device__ __forceinline__ int64_t row_pointer(const AggregateArgs& a, int64_t i) {
  return a.rowptr64 ? static_cast<const int64_t*>(a.rowptr)[i]
                    : static_cast<const int32_t*>(a.rowptr)[i];
}

// Extent of a row: `units` neighbours or partial counts from `begin` on, `degree` in all; below
// 2^31 by the few hundred that a block reads at once.
struct RowExtent {
  int64_t begin;
  int units;
  int degree;
};

struct LongRow {
  int64_t row;
  RowExtent extent;
};

// Planes that hold the sum of kUnits unit counts, if kPlanes planes count up to kUnits.
template <class Source, int kUnits, int kPlanes>
constexpr int sum_planes() {
  constexpr int kSum = Source::kUnitPlanes + kPlanes - 1;
  static_assert(kUnits * ((1 << Source::kUnitPlanes) - 1) < 1 << kSum, "the planes hold the sum");
  return kSum;
}

// Sums a long row with one warp.
template <int kBatch, int kWords, int kColumns, class Source>
__device__ __forceinline__ void add_long_row(const Source& source, const AggregateArgs& a,
                                             const LongRow& row, int64_t chunk) {
  using Lanes = RowLanes<kWords, kWarp / kColumns, kColumns>;
  const Lanes lanes(threadIdx.x % kWarp);
  CountPlanes<kWords, sum_planes<Source, kLongUnits, kLongPlanes>()> planes;
  planes.clear();
  const float scale = row_factor(a, row.row, true);
  if (chunk + lanes.word() < words_for(a.features))
    source.template count<kBatch>(planes, row.extent, lanes.split(), row.extent.units,
                                  Lanes::kSplits, chunk + lanes.word());
  finish_planes<Lanes, Source::kHalved>(a, source.bounds, lanes, lanes.fold(planes), row.row, scale,
                                        row.extent.degree, true, chunk);
}

// Counts a hub with the whole block, a share of its units per warp, into counts [kRowWords * 32].
template <int kBatch, int kWords, int kColumns, int kThreads, class Source>
__device__ __forceinline__ void count_hub(const Source& source, const AggregateArgs& a,
                                          const RowExtent& extent, int* counts, int64_t chunk) {
  using Lanes = RowLanes<kWords, kWarp / kColumns, kColumns>;
  constexpr int kRowWarps = kThreads / kWarp;
  const int thread = threadIdx.x, warp = thread / kWarp;
  const Lanes lanes(thread % kWarp);
  for (int k = thread; k < Lanes::kRowWords * kWarp; k += kThreads) counts[k] = 0;
  __syncthreads();
  const int64_t units = extent.units;
  const int64_t share =
      min(int64_t{kLongUnits} * Lanes::kSplits, (units + kRowWarps - 1) / kRowWarps);
  for (int64_t begin = warp * share; begin < units; begin += kRowWarps * share) {
    CountPlanes<kWords, sum_planes<Source, kLongUnits, kLongPlanes>()> planes;
    planes.clear();
    const int64_t end = min(begin + share, units);
    if (chunk + lanes.word() < words_for(a.features))
      source.template count<kBatch>(planes, extent, static_cast<int>(begin) + lanes.split(),
                                    static_cast<int>(end), Lanes::kSplits, chunk + lanes.word());
    lanes.for_quads(lanes.fold(planes), kFullWarp,
                    [&](int, int word, int first, const int (&count)[4], bool valid) {
                      for (int k = 0; k < 4; ++k)
                        if (valid && count[k] != 0)
                          atomicAdd(&counts[word * kWarp + first + k], count[k]);
                    });
  }
  __syncthreads();
}

// Sums a hub with the whole block.
template <int kBatch, int kWords, int kColumns, int kThreads, class Source>
__device__ __forceinline__ void add_hub(const Source& source, const AggregateArgs& a,
                                        const LongRow& row, int* counts, int64_t chunk) {
  using Lanes = RowLanes<kWords, kWarp / kColumns, kColumns>;
  constexpr int kRowWarps = kThreads / kWarp;
  const int warp = threadIdx.x / kWarp;
  const Lanes lanes(threadIdx.x % kWarp);
  const float scale = row_factor(a, row.row, true);
  count_hub<kBatch, kWords, kColumns, kThreads>(source, a, row.extent, counts, chunk);
  for (int word = warp * 4; word < Lanes::kRowWords; word += kRowWarps * 4) {
    const int k = (word + lanes.lane / 8) * kWarp + lanes.lane % 8 * 4;
    const bool valid = k < Lanes::kRowWords * kWarp;
    int sums[4] = {};
    float values[4];
    for (int i = 0; i < 4; ++i) {
      if (valid) sums[i] = signed_sum<Source::kHalved>(counts[k + i], row.extent.degree);
      values[i] = __int2float_rn(sums[i]);
    }
    const bool longer = a.out_short != nullptr && row.extent.degree > kMostShortDegree;
    const int64_t place = longer ? long_row_place(row.extent.begin) : row.row;
    if (a.out_short != nullptr)
      finish_shorts(a, row.row, chunk + k / kWarp, k % kWarp, sums, valid);
    if (longer || (a.out_short == nullptr && a.out_int != nullptr))
      finish_integers(a, place, chunk + k / kWarp, k % kWarp, sums, valid);
    if (a.out_short == nullptr && a.out_int == nullptr)
      finish_floats(a, row.row, scale, chunk + k / kWarp, k % kWarp, values, valid);
  }
  __syncthreads();
}

// Source provides kUnitPlanes, the planes of a unit's count; kHalved, true if results are half of
// the sums; bounds; extent(row); and count<batch>(planes, extent, first unit, end, stride, first
// word) for one lane.
template <class Source, class Short, int kWords, int kSplits, int kColumns>
__global__ void __launch_bounds__(Short::kThreads, Short::kBlocks)
    aggregate_rows(const __grid_constant__ Source source, const __grid_constant__ AggregateArgs a) {
  using Lanes = RowLanes<kWords, kSplits, kColumns>;
  constexpr int kHubUnits = hub_units(kColumns);
  constexpr int kRowWarps = Short::kThreads / kWarp;
  constexpr int kListed = kRowWarps * Lanes::kRows;
  __shared__ LongRow list[kListed];
  __shared__ int num_long, num_hubs;
  __shared__ int counts[Lanes::kRowWords * kWarp];
  const int thread = threadIdx.x, warp = thread / kWarp;
  const Lanes lanes(thread % kWarp);
  const int64_t chunk = static_cast<int64_t>(blockIdx.y) * Lanes::kRowWords;
  // Adjacent rows are often alike, so a block's warps take rows from distant parts of the graph.
  const int64_t row =
      (static_cast<int64_t>(warp) * gridDim.x + blockIdx.x) * Lanes::kRows + lanes.row();
  const bool exists = row < a.rows;
  if (thread == 0) num_long = num_hubs = 0;
  const RowExtent extent = exists ? source.extent(row) : RowExtent{0, 0, 0};
  const bool is_short = extent.units <= Short::kUnits * kSplits;
  {
    const float scale = row_factor(a, row, exists && is_short);
    CountPlanes<kWords, sum_planes<Source, Short::kUnits, Short::kPlanes>()> planes;
    planes.clear();
    if (is_short && chunk + lanes.word() < words_for(a.features))
      source.template count<Short::kBatch>(planes, extent, lanes.split(), extent.units, kSplits,
                                           chunk + lanes.word());
    finish_planes<Lanes, Source::kHalved>(a, source.bounds, lanes, lanes.fold(planes), row, scale,
                                          extent.degree, exists && is_short, chunk);
  }
  if (!__syncthreads_or(!is_short)) return;
  // Long rows fill the list from the front, hubs from the back.
  if (!is_short && lanes.is_first_of_row()) {
    const bool hub = extent.units > kHubUnits;
    const int place = atomicAdd(hub ? &num_hubs : &num_long, 1);
    list[hub ? kListed - 1 - place : place] = {row, extent};
  }
  __syncthreads();
  for (int i = warp; i < num_long; i += kRowWarps)
    add_long_row<Short::kBatch, kWords, kColumns>(source, a, list[i], chunk);
  for (int i = kListed - num_hubs; i < kListed; ++i)
    add_hub<Short::kBatch, kWords, kColumns, Short::kThreads>(source, a, list[i], counts, chunk);
}

// Parameters for short rows: most units per lane, planes that hold them, loads in flight, threads
// per block and minimum blocks per multiprocessor.
template <int kUnitCount, int kPlaneCount, int kBatchSize, int kThreadCount, int kMinBlocks>
struct ShortRows {
  static constexpr int kUnits = kUnitCount, kPlanes = kPlaneCount, kBatch = kBatchSize,
                       kThreads = kThreadCount, kBlocks = kMinBlocks;
};

// Launches enough blocks for all rows and words.
template <class Short, int kWords, int kSplits, int kColumns, class Source>
cudaError_t launch_rows(const Source& source, const AggregateArgs& args, const Context& context) {
  if (args.rows == 0 || args.features == 0) return cudaSuccess;
  using Lanes = RowLanes<kWords, kSplits, kColumns>;
  constexpr int kBlockRows = Short::kThreads / kWarp * Lanes::kRows;
  const dim3 grid(static_cast<unsigned>(ceil_div(args.rows, kBlockRows)),
                  static_cast<unsigned>(ceil_div(words_for(args.features), Lanes::kRowWords)));
  aggregate_rows<Source, Short, kWords, kSplits, kColumns>
      <<<grid, Short::kThreads, 0, context.stream>>>(source, args);
  return cudaGetLastError();
}

}  // namespace bitgnn::cuda::bspmm
