// Launches CSR aggregations, sharing rows among lanes by their number, words and neighbours.
#pragma once

#include <type_traits>

#include "bspmm/arguments.h"
#include "bspmm/cuda/short_rows.cuh"
#include "core/cuda/variants.h"

namespace bitgnn::cuda::bspmm {

// Few registers and many warps for short rows, more neighbours per lane for long ones; small blocks
// if a single wave covers all rows.
template <bool kOneWave>
using FewEach = ShortRows<16, 5, 4, kOneWave ? 128 : 256, kOneWave ? 8 : 4>;
template <bool kOneWave>
using ManyEach = ShortRows<63, 6, 4, kOneWave ? 128 : 256, kOneWave ? 6 : 3>;

constexpr int kLaneShare = 8;           // neighbours that keep a lane busy
constexpr int kManySplits = 16;         // lanes per row from which rows count as long
constexpr int kShortLanes = 2;          // lanes per row if most rows are short
constexpr int64_t kFewNeighbours = 16;  // mean degree up to which they are
constexpr int64_t kWaveLanes = 768;     // lanes a multiprocessor holds before others wait

// Lanes that share a row's neighbours: enough for its mean degree, and more if the rows alone leave
// the device idle, so that latency decides.
inline int splits_for(const AggregateArgs& args, int columns, const Device& device) {
  int splits = 1;
  while (splits * columns < kWarp) {
    const bool long_rows = splits * kLaneShare * args.rows < args.edges;
    const bool idle =
        splits < kManySplits && 2 * splits * columns * args.rows <= device.sm_count * kWaveLanes;
    if (!long_rows && !idle) break;
    splits *= 2;
  }
  return splits;
}

template <class Source, int kWords, int kColumns, int kSplits = 1>
cudaError_t launch_splits(const Source& source, int splits, const Context& context) {
  const AggregateArgs& args = source.a;
  if (splits > kSplits) {
    if constexpr (2 * kSplits * kColumns <= kWarp)
      return launch_splits<Source, kWords, kColumns, 2 * kSplits>(source, splits, context);
  }
  constexpr bool kMany = kSplits >= kManySplits || kSplits * kColumns == kWarp;
  if (takes("bspmm/bits, small blocks",
            kSplits * kColumns * args.rows <= context.device.sm_count * kWaveLanes)) {
    using Short = std::conditional_t<kMany, ManyEach<true>, FewEach<true>>;
    return launch_rows<Short, kWords, kSplits, kColumns>(source, args, context);
  }
  using Short = std::conditional_t<kMany, ManyEach<false>, FewEach<false>>;
  return launch_rows<Short, kWords, kSplits, kColumns>(source, args, context);
}

// Rows with few neighbours: two lanes each.
template <class Source, int kColumns>
cudaError_t launch_short(const Source& source, const Context& context) {
  constexpr int kSplits = kShortLanes / kColumns;
  using Short =
      std::conditional_t<kSplits == 1, ShortRows<31, 5, 4, 256, 4>, ShortRows<15, 4, 4, 256, 4>>;
  return launch_spread<Short, kAccessWords, kSplits, kColumns>(source, context);
}

template <int kWords, int kColumns, class Source>
cudaError_t launch(const Source& source, const Context& context) {
  const AggregateArgs& args = source.a;
  const int splits = splits_for(args, kColumns, context.device);
  if constexpr (kWords == kAccessWords && kColumns <= kShortLanes) {
    const bool short_rows = args.rows >= kSpreadRows && args.edges <= kFewNeighbours * args.rows;
    if (short_rows || splits * kColumns <= kShortLanes)
      return launch_short<Source, kColumns>(source, context);
    return launch_splits<Source, kWords, kColumns, 2 * kShortLanes / kColumns>(source, splits,
                                                                               context);
  } else {
    return launch_splits<Source, kWords, kColumns>(source, splits, context);
  }
}

template <class Source>
cudaError_t launch_vectors(const Source& source, const Context& context) {
  const int64_t words = words_for(source.a.features);
  if (words <= 4) return launch<4, 1>(source, context);
  if (words <= 8) return launch<4, 2>(source, context);
  return launch<4, 4>(source, context);
}

}  // namespace bitgnn::cuda::bspmm
