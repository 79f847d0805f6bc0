// Sums of packed rows of tables beyond the L2 cache, whose rows are staged in shared memory.
//
// A warp takes a tile of adjacent rows, kColumns lanes of four words each. The edges of the tile
// lie one after another, so the lanes read their columns in whole lines and copy all rows of up to
// kStagedPieces pieces to shared memory at once, without a register for any: a tile waits for its
// row pointers, then twice for each few hundred edges. Short rows are then counted by their own
// lanes, long ones by the whole warp. Hubs are left to the first blocks, which search for them.
// Bound by random sectors of memory.
#pragma once

#include "bspmm/cuda/bits.cuh"
#include "core/cuda/mma_b1.cuh"

namespace bitgnn::cuda::bspmm {

constexpr int kStagedThreads = 128;
constexpr int kStagedBlocks = 5;  // at least on a multiprocessor
constexpr int kStagedWarps = kStagedThreads / kWarp;
constexpr int kStagedBatch = 8;                         // copies of a lane at once
constexpr int kStagedPieces = kStagedBatch * kWarp;     // pieces of four words of a warp at once
constexpr int kStagedPlanes = 5;                        // planes that a lane counts in
constexpr int kStagedShort = (1 << kStagedPlanes) - 1;  // neighbours of a row that one lane counts
constexpr int kCountBatch = 4;

// The widest access that rows of the table, or all but their ends, are made of.
inline int access_words(const AggregateArgs& a) {
  int words = kAccessWords;
  while (words > 1 && (a.x_stride % words != 0 || !is_aligned(a.x, words * sizeof(int32_t))))
    words /= 2;
  return words;
}

// Copies four words of a row, of which `left` exist, in accesses of `access` words; zeros behind.
__device__ __forceinline__ void stage_piece(uint4* to, const char* row, int left, int access) {
  const auto* from = reinterpret_cast<const int32_t*>(row);
  if (access == kAccessWords) {
    copy_async_16(reinterpret_cast<uint32_t*>(to), from, left > 0 ? 16 : 0);
  } else if (access == 2) {
#pragma unroll
    for (int w = 0; w < kAccessWords; w += 2)
      copy_async_8(reinterpret_cast<uint2*>(to) + w / 2, from + (w < left ? w : 0),
                   w < left ? 8 : 0);
  } else {
#pragma unroll
    for (int w = 0; w < kAccessWords; ++w)
      copy_async_4(reinterpret_cast<uint32_t*>(to) + w, from + (w < left ? w : 0),
                   w < left ? 4 : 0);
  }
}

// Stages the rows of `count` edges from `edge` on, kColumns pieces each, and waits for them.
template <int kColumns>
__device__ __forceinline__ void stage_rows(uint4* staged, const AggregateArgs& a, int access,
                                           int64_t edge, int count, int64_t first_word) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int32_t* indices = a.indices + edge;
  const char* table = static_cast<const char*>(a.x) + first_word * sizeof(uint32_t);
  const auto row_bytes = static_cast<uint32_t>(a.x_stride * sizeof(uint32_t));
  const auto words = static_cast<int>(words_for(a.features) - first_word);
  int32_t index[kStagedBatch];
#pragma unroll
  for (int k = 0; k < kStagedBatch; ++k) {
    const int place = (lane + k * kWarp) / kColumns;
    index[k] = place < count ? __ldcs(indices + place) : -1;
  }
#pragma unroll
  for (int k = 0; k < kStagedBatch; ++k) {
    if (index[k] < 0) continue;
    const int piece = lane + k * kWarp, word = piece % kColumns * kAccessWords;
    const uint64_t place = static_cast<uint64_t>(static_cast<uint32_t>(index[k])) * row_bytes;
    const int left = words - word;
    const char* row = table + place + (left > 0 ? word * sizeof(uint32_t) : 0);
    stage_piece(staged + piece, row, left, access);
  }
  commit_copies();
  wait_copies<0>();
  __syncwarp();
}

// Adds the staged edges first, first + kStride, ... below `end` to a column's counts.
template <int kColumns, int kStride>
__device__ __forceinline__ void add_staged(CountPlanes<kAccessWords, kStagedPlanes>& counts,
                                           const uint4* column, int first, int end) {
  for (int edge = first; edge < end; edge += kCountBatch * kStride) {
    WordVector<kAccessWords> x[kCountBatch];
#pragma unroll
    for (int k = 0; k < kCountBatch; ++k) {
      x[k] = WordVector<kAccessWords>{};
      const int place = edge + k * kStride;
      if (place < end)
        x[k] =
            load_words<kAccessWords>(reinterpret_cast<const uint32_t*>(column + place * kColumns));
    }
    counts.add(x);
  }
}

// A lane's row of a tile, for its column of words.
struct TileRow {
  int64_t row;
  int64_t begin, end;  // edges
  float scale;
  bool is_short;
};

// Sums the rows of lanes [from, to), whose edges follow one another, over words from `chunk` on:
// short rows into `counts`, long ones into the state of their first lane.
template <class Finish, int kColumns>
__device__ __forceinline__ void sum_tile(const Finish& finish, typename Finish::State& state,
                                         CountPlanes<kAccessWords, kStagedPlanes>& counts,
                                         uint4* staged, const TileRow& own, int from, int to,
                                         int64_t chunk) {
  constexpr int kEdges = kStagedPieces / kColumns;
  using Whole = RowLanes<kAccessWords, kWarp / kColumns, kColumns>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Whole lanes(lane);
  const int64_t begin = __shfl_sync(kFullWarp, own.begin, from);
  const auto total = static_cast<int>(__shfl_sync(kFullWarp, own.end, to - 1) - begin);
  const bool inside = lane >= from && lane < to;
  const int first = inside ? static_cast<int>(own.begin - begin) : 0;
  const int last = inside ? static_cast<int>(own.end - begin) : 0;
  const uint4* column = staged + lane % kColumns;
  CountPlanes<kAccessWords, kStagedPlanes> shared;  // of the long row that is being counted
  shared.clear();
  for (int base = 0; base < total; base += kEdges) {
    const int count = min(kEdges, total - base);
    stage_rows<kColumns>(staged, finish.source.a, finish.access, begin + base, count, chunk);
    const int low = max(first - base, 0), high = min(last - base, count);
    if (own.is_short) add_staged<kColumns, 1>(counts, column, low, high);
    unsigned rows = __ballot_sync(kFullWarp, !own.is_short && low < high && lane % kColumns == 0);
    for (; rows != 0; rows &= rows - 1) {
      const int owner = __ffs(static_cast<int>(rows)) - 1;
      const int row_first = __shfl_sync(kFullWarp, first, owner);
      const int row_last = __shfl_sync(kFullWarp, last, owner);
      if (row_first >= base) shared.clear();
      add_staged<kColumns, Whole::kSplits>(shared, column, max(row_first - base, 0) + lanes.split(),
                                           min(row_last - base, count));
      if (row_last > base + count) continue;
      const int64_t row = __shfl_sync(kFullWarp, own.row, owner);
      const float scale = __shfl_sync(kFullWarp, own.scale, owner);
      finish.long_row(state, lanes, lanes.fold(shared), owner, row, scale, row_last - row_first,
                      chunk);
    }
    __syncwarp();
  }
}

// Counts a hub with the whole block into counts [kColumns * 4 * 32], a share of its edges per warp.
template <int kColumns>
__device__ __forceinline__ void count_staged_hub(const AggregateArgs& a, int access,
                                                 const RowExtent& extent, int* counts,
                                                 uint4* staged, int64_t chunk) {
  constexpr int kEdges = kStagedPieces / kColumns;
  using Whole = RowLanes<kAccessWords, kWarp / kColumns, kColumns>;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const Whole lanes(lane);
  for (int k = thread; k < Whole::kRowWords * kWarp; k += kStagedThreads) counts[k] = 0;
  __syncthreads();
  for (int64_t base = thread / kWarp * kEdges; base < extent.degree;
       base += kStagedWarps * kEdges) {
    const auto count = static_cast<int>(min(int64_t{kEdges}, extent.degree - base));
    stage_rows<kColumns>(staged, a, access, extent.begin + base, count, chunk);
    CountPlanes<kAccessWords, kStagedPlanes> planes;
    planes.clear();
    add_staged<kColumns, Whole::kSplits>(planes, staged + lane % kColumns, lanes.split(), count);
    lanes.for_quads(lanes.fold(planes), kFullWarp,
                    [&](int, int word, int first, const int (&count)[4], bool valid) {
                      for (int k = 0; k < 4; ++k)
                        if (valid && count[k] != 0)
                          atomicAdd(&counts[word * kWarp + first + k], count[k]);
                    });
    __syncwarp();
  }
  __syncthreads();
}

// Lets the first blocks sum the rows of more than `most` neighbours.
template <int kColumns, class Finish>
__device__ __forceinline__ void sum_hubs(const Finish& finish, uint4* staged, int most,
                                         unsigned num_blocks) {
  constexpr int kRowWords = kColumns * kAccessWords;
  __shared__ LongRow list[kStagedThreads];
  __shared__ int counts[kRowWords * kWarp];
  __shared__ int num_hubs;
  const AggregateArgs& a = finish.source.a;
  const int64_t step = static_cast<int64_t>(num_blocks) * kStagedThreads;
  const auto extent_of = [&](int64_t row) {
    return row < a.rows ? finish.source.extent(row) : RowExtent{0, 0, 0};
  };
  int64_t row = static_cast<int64_t>(blockIdx.x) * kStagedThreads + threadIdx.x;
  RowExtent extent = extent_of(row);
  for (int64_t base = row - threadIdx.x; base < a.rows; base += step) {
    const RowExtent next = extent_of(row + step);
    if (threadIdx.x == 0) num_hubs = 0;
    if (__syncthreads_or(extent.degree > most)) {
      if (extent.degree > most) list[atomicAdd(&num_hubs, 1)] = {row, extent};
      __syncthreads();
      for (int i = 0; i < num_hubs; ++i) {
        const LongRow hub = list[i];
        const float scale = row_factor(a, hub.row, true);
        typename Finish::State state{};
        for (int64_t chunk = 0; chunk < words_for(a.features); chunk += kRowWords) {
          count_staged_hub<kColumns>(a, finish.access, hub.extent, counts, staged, chunk);
          finish.template hub<kRowWords>(state, hub, scale, counts, chunk);
          __syncthreads();
        }
        finish.close_hub(state, hub.row);
      }
      __syncthreads();
    }
    extent = next;
    row += step;
  }
}

// Finish provides source, CsrRows with their table; access, its access_words(); State, what a lane
// keeps of its row, or a thread of a hub; rows(), long_row() and hub(), which finish sums of a
// chunk of words; and close() and close_hub(), called last.
template <class Finish, int kColumns>
__global__ void __launch_bounds__(kStagedThreads, kStagedBlocks)
    aggregate_staged(const __grid_constant__ Finish finish, unsigned hub_blocks) {
  using Short = RowLanes<kAccessWords, 1, kColumns>;
  constexpr int kMostNeighbours = hub_units(kColumns);
  // A lane's share of a long row, with one more for each piece of the row that is staged.
  static_assert(
      kMostNeighbours * kColumns / kWarp + kMostNeighbours * kColumns / kStagedPieces + 2 <=
          kStagedShort,
      "the planes hold it");
  __shared__ uint4 staged[kStagedWarps][kStagedPieces];
  if (blockIdx.x < hub_blocks) {
    sum_hubs<kColumns>(finish, staged[threadIdx.x / kWarp], kMostNeighbours, hub_blocks);
    return;
  }
  const AggregateArgs& a = finish.source.a;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const Short lanes(static_cast<int>(threadIdx.x) % kWarp);
  const int64_t tile = static_cast<int64_t>(blockIdx.x - hub_blocks) * kStagedWarps + warp;
  TileRow own;
  own.row = tile * Short::kRows + lanes.row();
  own.begin = row_pointer(a, min(own.row, a.rows));
  own.end = row_pointer(a, min(own.row + 1, a.rows));
  const auto degree = static_cast<int>(own.end - own.begin);
  const bool is_hub = degree > kMostNeighbours;
  const bool wanted = own.row < a.rows && !is_hub;
  own.scale = row_factor(a, own.row, wanted);
  own.is_short = degree <= kStagedShort;
  const unsigned hubs = __ballot_sync(kFullWarp, is_hub);
  typename Finish::State state{};
  for (int64_t chunk = 0; chunk < words_for(a.features); chunk += Short::kRowWords) {
    CountPlanes<kAccessWords, kStagedPlanes> counts;
    counts.clear();
    unsigned ends = hubs;
    for (int from = 0; from < kWarp;) {
      const int to = ends != 0 ? __ffs(static_cast<int>(ends)) - 1 : kWarp;
      if (to > from)
        sum_tile<Finish, kColumns>(finish, state, counts, staged[warp], own, from, to, chunk);
      from = to + 1;
      ends &= ends - 1;
    }
    finish.rows(state, lanes, counts, own.row, own.scale, degree, wanted && own.is_short, chunk);
  }
  finish.close(state, lanes, own.row, wanted);
}

template <class Finish, int kColumns>
cudaError_t launch_staged(const Finish& finish, const Context& context) {
  constexpr int64_t kTileRows = kWarp / kColumns;
  const int64_t rows = finish.source.a.rows;
  if (rows == 0) return cudaSuccess;
  const auto searching = ceil_div(rows, kStagedThreads);
  const auto hub_blocks = static_cast<unsigned>(
      searching < context.device.sm_count ? searching : context.device.sm_count);
  const auto blocks = static_cast<unsigned>(ceil_div(rows, kStagedWarps * kTileRows)) + hub_blocks;
  aggregate_staged<Finish, kColumns>
      <<<blocks, kStagedThreads, 0, context.stream>>>(finish, hub_blocks);
  return cudaGetLastError();
}

// Two lanes a row if its words are more than one lane's.
template <class Finish>
cudaError_t launch_staged(const Finish& finish, const Context& context) {
  return words_for(finish.source.a.features) <= kAccessWords
             ? launch_staged<Finish, 1>(finish, context)
             : launch_staged<Finish, 2>(finish, context);
}

}  // namespace bitgnn::cuda::bspmm
