// Counts the neighbours of a slab of rows and leaves the counts' bit planes in shared memory.
#pragma once

#include "bspmm/arguments.h"
#include "bspmm/cuda/bits.cuh"
#include "pairs/cuda/joint/epilogue.cuh"

namespace bitgnn::cuda::pairs {

constexpr int most_of(int a, int b) { return a > b ? a : b; }
constexpr int log2_of(int n) { return n <= 1 ? 0 : 1 + log2_of(n / 2); }

// How a warp stages its rows' planes: plane p of word w of row r at r * kPitch + p * kRowWords + w.
// The pitch spreads rows over the banks. Rows of at most kUnits * kSplits units are counted by the
// lanes that share them, longer ones by the whole warp.
template <class Source, class Short, int kWords, int kSplits, int kColumns, int kMostPlanes>
struct JoinShape {
  using Lanes = bspmm::RowLanes<kWords, kSplits, kColumns>;
  using LongLanes = bspmm::RowLanes<kWords, kWarp / kColumns, kColumns>;
  static constexpr int kRowWords = kWords * kColumns;
  static constexpr int kFeatures = kRowWords * static_cast<int>(kWordBits);
  static constexpr int kCounted = bspmm::sum_planes<Source, Short::kUnits, Short::kPlanes>();
  static constexpr int kCountedLong =
      bspmm::sum_planes<Source, bspmm::kLongUnits, bspmm::kLongPlanes>();
  static constexpr int kShortPlanes = kCounted + log2_of(kSplits);
  static constexpr int kPlanes =
      kMostPlanes > 0 ? kMostPlanes
                      : most_of(kShortPlanes, kCountedLong + log2_of(kWarp / kColumns));
  static constexpr int kPitch = (kPlanes * kRowWords + 7) / 8 * 8 + 4;
  static constexpr int kShortUnits = Short::kUnits * kSplits;
  static constexpr int kHubUnits = bspmm::hub_units(kColumns);
  static constexpr int kMaxShort = kShortUnits * ((1 << Source::kUnitPlanes) - 1);
  static_assert(kPlanes <= 16 && kMaxShort < 1 << kPlanes, "the planes hold the counts");
  static_assert(bmm::kTallRows % Lanes::kRows == 0, "whole passes");

  __device__ static bool is_hub(const bspmm::RowExtent& extent) {
    return extent.units > kShortUnits &&
           (extent.units > kHubUnits || kWarp - __clz(extent.degree) > kPlanes);
  }
};

// Stores the folded planes of the lane's row, with zeros above them.
template <class Shape, class Lanes, int kPlanes>
__device__ __forceinline__ void stage_planes(
    const Lanes& lanes, const bspmm::CountPlanes<Lanes::kKept, kPlanes>& planes, bool wanted,
    int slot, uint32_t* staged) {
  // Planes beyond the shape's are known to be zero.
  if (!wanted || !lanes.owns_words()) return;
  constexpr uint32_t kZeros[Lanes::kKept] = {};
  uint32_t* to = staged + slot * Shape::kPitch + lanes.kept_word();
#pragma unroll
  for (int p = 0; p < Shape::kPlanes; ++p) {
    if (p < kPlanes) {
      bspmm::store_words<Lanes::kKept>(to + p * Shape::kRowWords, planes.plane[p]);
    } else {
      bspmm::store_words<Lanes::kKept>(to + p * Shape::kRowWords, kZeros);
    }
  }
}

// Counts and stages the rows of a slab from `first_row` on.
template <class Shape, class Short, class Source>
__device__ __forceinline__ void count_slab(const Source& source, const AggregateArgs& a,
                                           int64_t first_row, int64_t chunk, uint32_t* staged,
                                           JoinRow* joined, int lane) {
  using Lanes = typename Shape::Lanes;
  using LongLanes = typename Shape::LongLanes;
  const Lanes lanes(lane);
  const LongLanes of_row(lane);
  const int64_t words = words_for(a.features);
#pragma unroll 1
  for (int first = 0; first < bmm::kTallRows; first += Lanes::kRows) {
    const int slot = first + lanes.row();
    const int64_t row = first_row + slot;
    const bool exists = row < a.rows;
    const bspmm::RowExtent extent = exists ? source.extent(row) : bspmm::RowExtent{0, 0, 0};
    const bool is_short = extent.units <= Shape::kShortUnits;
    const bool hub = Shape::is_hub(extent);
    if (lanes.is_first_of_row())
      joined[slot] = {exists && !hub ? extent.degree : -1,
                      exists && a.row_scale != nullptr ? a.row_scale[row] : 1.0f,
                      hub ? 0 : kWarp - __clz(extent.degree)};
    {
      bspmm::CountPlanes<Lanes::kWords, Shape::kCounted> planes;
      planes.clear();
      if (is_short && chunk + lanes.word() < words)
        source.template count<Short::kBatch>(planes, extent, lanes.split(), extent.units,
                                             Lanes::kSplits, chunk + lanes.word());
      stage_planes<Shape>(lanes, lanes.fold(planes), is_short, slot, staged);
    }
    unsigned left = __ballot_sync(kFullWarp, lanes.is_first_of_row() && !is_short && !hub);
    while (left != 0) {
      const int from = __ffs(left) - 1;
      left &= left - 1;
      const bspmm::RowExtent whole{__shfl_sync(kFullWarp, extent.begin, from),
                                   __shfl_sync(kFullWarp, extent.units, from),
                                   __shfl_sync(kFullWarp, extent.degree, from)};
      bspmm::CountPlanes<Lanes::kWords, Shape::kCountedLong> planes;
      planes.clear();
      if (chunk + of_row.word() < words)
        source.template count<Short::kBatch>(planes, whole, of_row.split(), whole.units,
                                             LongLanes::kSplits, chunk + of_row.word());
      stage_planes<Shape>(of_row, of_row.fold(planes), true, __shfl_sync(kFullWarp, slot, from),
                          staged);
    }
  }
}

}  // namespace bitgnn::cuda::pairs
