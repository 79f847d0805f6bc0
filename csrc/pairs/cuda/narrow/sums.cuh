// Sums of narrow rows over a pattern. A group of lanes owns a row and a chunk of features; a long
// row takes whole blocks. Bound by instructions, with single lanes by the gathered pieces.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "pairs/arguments.h"
#include "pairs/cuda/narrow/heads.cuh"
#include "pairs/cuda/narrow/root_term.cuh"
#include "pairs/cuda/narrow/walk.cuh"

namespace bitgnn::cuda::pairs {

// Row j of chunk c of the table is at c * chunk_stride + j * Row::kPitchBytes.
struct NarrowLaunch {
  AggregateArgs a;
  HeadTarget head;  // other than none only if one chunk holds a row
  const char* table;
  int64_t chunk_stride;
  bspmm::RowOrder order;  // for OrderedPattern: its heavy rows take whole blocks,
  int64_t long_degree;    // as do rows of other patterns with more edges than this,
  unsigned long_blocks;   // in the first blocks of a grid, or if 0 in those that meet them
  const float* out_scale;
  const float* shift;  // with factors, for kFactorsOnes
  bool odd;            // dot = 2 * half + 1
  RootTerm root;       // without a head
};

// A row's factor, fetched long before it is needed.
__device__ __forceinline__ float narrow_row_factor(const NarrowLaunch& d, int64_t row) {
  return d.a.row_scale != nullptr ? __ldg(d.a.row_scale + row) : 1.0f;
}

// Scales, shifts and biases of kEach adjacent features, from `first` on. Factors of 1 and a bias of
// -0 change nothing.
template <NarrowSum kSum, int kEach>
struct NarrowColumns {
  float right[kEach], shift[kEach], bias[kEach];

  // `left` of them exist.
  __device__ __forceinline__ NarrowColumns(const NarrowLaunch& d, int first, int left) {
    fill(right, 1.0f, d.out_scale, first, left);
    fill(bias, -0.0f, d.a.bias, first, left);
    if constexpr (kSum != NarrowSum::kFactors) fill(shift, 0.0f, d.shift, first, left);
  }

  // Feature `first + i` of a row with factor `left` from its sum of halves; `ones` is the sum of
  // the factors.
  __device__ __forceinline__ float value(const NarrowLaunch& d, int i, float left, int64_t degree,
                                         float sum, float ones) const {
    float v = doubled<kSum>(sum, ones, degree, d.odd);
    v = __fmul_rn(__fmul_rn(left, right[i]), v);
    if (kSum != NarrowSum::kFactors && d.shift != nullptr) {
      const float all = kSum == NarrowSum::kPlain ? __ll2float_rn(degree) : ones;
      v = __fadd_rn(v, __fmul_rn(__fmul_rn(left, shift[i]), all));
    }
    return __fadd_rn(v, bias[i]);
  }

 private:
  __device__ __forceinline__ static void fill(float (&to)[kEach], float missing, const float* from,
                                              int first, int left) {
#pragma unroll
    for (float& value : to) value = missing;
    if (from == nullptr) return;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (i < left) to[i] = __ldg(from + first + i);
  }
};

template <class Row>
__device__ __forceinline__ int features_of_chunk(const NarrowLaunch& d, int64_t chunk) {
  return static_cast<int>(
      min(d.a.features - chunk * Row::kFeatures, static_cast<int64_t>(Row::kFeatures)));
}

constexpr int kFewLoads = 4;  // in flight per lane

// One block per row and fragment: its groups take the pieces, then one thread per feature adds them
// up. Only a head needs all fragments of a row in one block.
template <class Pattern, bool kHead, class Row, NarrowSum kSum>
__device__ __forceinline__ void aggregate_long_row(const NarrowLaunch& d,
                                                   const typename Pattern::Row& extent,
                                                   int first_part, int last_part) {
  using Share = NarrowShare<NarrowPart<Row>, kFewLoads, kSumSlots>;
  using Walk = NarrowWalk<Share, kSum>;
  constexpr int kTotal = Row::kUsed;
  static_assert(kTotal <= kNarrowThreads, "a thread adds up the pieces of a feature");
  __shared__ float pieces[Share::kGroups][kTotal + 1];
  __shared__ float scores[kHead ? Row::kLanes * kTotal : 1];
  const AggregateArgs& a = d.a;
  const int64_t chunk = blockIdx.y;
  const int group = static_cast<int>(threadIdx.x) / Share::kGroup;
  const int own = static_cast<int>(threadIdx.x);
  const int features = features_of_chunk<Row>(d, chunk);
  const int64_t row = extent.row;
  const int64_t degree = extent.degree;
  const bool has_head = kHead && d.head.head != Head::kNone;
  for (int part = first_part; part < last_part && part * kTotal < features; ++part) {
    Walk walk(d.table + chunk * d.chunk_stride, part);
    typename Pattern::template Edges<typename Walk::Lane> edges(a, extent, walk.place_in_group());
    const int first = walk.first_element();
    const int place = part * kTotal + own;  // of the thread's feature
    const bool adds = own < kTotal && place < features;
    const int feature = static_cast<int>(blockIdx.y) * Row::kFeatures + place;
    float total = 0.0f;
    float ones = 0.0f;
    for (int64_t base = 0; base < degree; base += Share::kGroups * kSumPiece) {
      const int64_t begin = base + group * kSumPiece;
      walk.add(edges, begin, static_cast<int>(max(min(degree - begin, kSumPiece), int64_t{0})),
               [&](const NarrowSums<Share>& piece) {
#pragma unroll
                 for (int i = 0; i < Share::kKept; ++i) pieces[group][first + i] = piece.sum[i];
                 pieces[group][kTotal] = piece.ones;
               });
      __syncthreads();
      const auto count = static_cast<int>(
          min((degree - base + kSumPiece - 1) / kSumPiece, int64_t{Share::kGroups}));
      if (adds) {
        for (int p = 0; p < count; ++p) {
          total = add_piece<kSum>(total, pieces[p][own]);
          ones = __fadd_rn(ones, pieces[p][kTotal]);
        }
      }
      __syncthreads();
    }
    if (!adds) continue;
    float value[] = {NarrowColumns<kSum, 1>(d, feature, 1)
                         .value(d, 0, narrow_row_factor(d, row), degree, total, ones)};
    if (d.root.table != nullptr) {
      RootElements<Row, 1> root;
      root.load(d.root, row, chunk, place);
      root.add_to(value, d.root, row, place, feature, 1);
    }
    if (has_head)
      scores[place] = value[0];
    else
      a.out_float[row * a.features + feature] = value[0];
  }
  if (!has_head) return;
  __syncthreads();
  if (threadIdx.x < kWarp) {
    constexpr int kEach = (Row::kLanes * kTotal + kWarp - 1) / kWarp;
    float score[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) score[i] = scores[min(kEach * own + i, features - 1)];
    finish_scores<kEach, kWarp, 0>(d.head, row, kFullWarp, own == 0, true, kEach * own, score);
  }
  __syncthreads();
}

// Long rows that a block found.
struct LongRows {
  int64_t rows[kNarrowThreads];
  int count;
};

// All threads of the block take part; each may have found a row.
template <class Pattern, bool kHead, class Row, NarrowSum kSum>
__device__ __forceinline__ void aggregate_found(const NarrowLaunch& d, LongRows& found,
                                                bool is_long, int64_t row) {
  if (!__syncthreads_or(is_long)) return;
  if (threadIdx.x == 0) found.count = 0;
  __syncthreads();
  if (is_long) found.rows[atomicAdd(&found.count, 1)] = row;
  __syncthreads();
  for (int i = 0; i < found.count; ++i)
    aggregate_long_row<Pattern, kHead, Row, kSum>(d, Pattern::row(d.a, found.rows[i]), 0,
                                                  Row::kLanes);
  __syncthreads();
}

// One group per row; if no earlier blocks take the long rows, the block then takes those it met.
template <class Pattern, bool kHead, class Share, NarrowSum kSum>
__device__ __forceinline__ void aggregate_short_rows(const NarrowLaunch& d, LongRows& found) {
  using Row = typename Share::Row;
  const AggregateArgs& a = d.a;
  const int64_t chunk = blockIdx.y;
  const int64_t slot = static_cast<int64_t>(blockIdx.x - d.long_blocks) * Share::kGroups +
                       static_cast<int>(threadIdx.x) / Share::kGroup;
  using Walk = NarrowWalk<Share, kSum>;
  constexpr int kKept = Share::kKept;
  const typename Pattern::Row extent = Pattern::light_row(a, d.order, slot);
  const int64_t row = extent.row;
  const bool is_long = extent.degree > d.long_degree;
  const bool exists = row >= 0 && !is_long;
  const int degree = exists ? static_cast<int>(extent.degree) : 0;
  const float left = row >= 0 ? narrow_row_factor(d, row) : 1.0f;
  Walk walk(d.table + chunk * d.chunk_stride);
  const int first = walk.first_element();
  typename Pattern::template Edges<typename Walk::Lane> edges(a, extent, walk.place_in_group());
  wait_for_previous();
  constexpr bool kEarly = Row::kLanes == 1;  // otherwise registers are better saved
  RootElements<Row, kKept> root;
  if (kEarly && d.root.table != nullptr && exists) root.load(d.root, row, chunk, first);
  NarrowSums<Share> total{};
  walk.add(edges, 0, degree, [&](const NarrowSums<Share>& piece) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) total.sum[i] = add_piece<kSum>(total.sum[i], piece.sum[i]);
    total.ones = __fadd_rn(total.ones, piece.ones);
  });
  if (exists) {
    const int feature = static_cast<int>(blockIdx.y) * Row::kFeatures + first;
    const int features = features_of_chunk<Row>(d, chunk) - first;
    const NarrowColumns<kSum, kKept> columns(d, feature, features);
    float value[kKept];
#pragma unroll
    for (int i = 0; i < kKept; ++i)
      value[i] = columns.value(d, i, left, degree, total.sum[i], total.ones);
    if (d.root.table != nullptr) {
      if (!kEarly) root.load(d.root, row, chunk, first);
      root.add_to(value, d.root, row, first, feature, features);
    }
    if (kHead && d.head.head != Head::kNone) {
      finish_scores<kKept, Share::kGroup, Walk::kSharedLanes>(
          d.head, row, walk.mask(), walk.lane % Share::kGroup == 0, walk.counts(), first, value);
    } else {
      float* to = a.out_float + row * a.features + feature;
#pragma unroll
      for (int i = 0; i < kKept; ++i)
        if (i < features) to[i] = value[i];
    }
  }
  if (d.long_blocks == 0)
    aggregate_found<Pattern, kHead, Row, kSum>(d, found,
                                               is_long && threadIdx.x % Share::kGroup == 0, row);
}

// Sums long rows, which start first; without an order, each block searches for them among every
// long_blocks-th row.
template <class Pattern, bool kHead, class Row, NarrowSum kSum>
__device__ __forceinline__ void aggregate_long_rows(const NarrowLaunch& d, LongRows& found) {
  const AggregateArgs& a = d.a;
  wait_for_previous();
  if constexpr (Pattern::kOrdered) {
    const bool whole = kHead && d.head.head != Head::kNone;
    const int parts = whole ? 1 : Row::kLanes;  // blocks that share a row
    const int part = static_cast<int>(blockIdx.x) % parts;
    bspmm::for_heavy_rows(a, d.order, blockIdx.x / parts, [&](const bspmm::RowSpan& span) {
      aggregate_long_row<Pattern, kHead, Row, kSum>(d, Pattern::of(span), part,
                                                    whole ? Row::kLanes : part + 1);
    });
  } else {
    const int64_t step = static_cast<int64_t>(d.long_blocks) * kNarrowThreads;
    for (int64_t base = blockIdx.x; base < a.rows; base += step) {
      const int64_t row = base + static_cast<int64_t>(threadIdx.x) * d.long_blocks;
      aggregate_found<Pattern, kHead, Row, kSum>(
          d, found, row < a.rows && Pattern::row(a, row).degree > d.long_degree, row);
    }
  }
}

// Blocks that a multiprocessor should hold. Single lanes of rows in no order may hold more loads in
// flight, whose registers leave room for fewer blocks.
template <class Pattern, class Share>
constexpr int least_blocks() {
  if (Pattern::kOrdered) return Share::Row::kLanes > 1 && Share::kSplit == kSumSlots ? 9 : 8;
  return Share::Row::kLanes > 1 ? 8 : 0;
}

// blockIdx.y is the chunk of features. Without kHead there is no head.
template <class Pattern, bool kHead, class Share, NarrowSum kSum>
__global__ void __launch_bounds__(kNarrowThreads, (least_blocks<Pattern, Share>()))
    aggregate_narrow_kernel(const __grid_constant__ NarrowLaunch d) {
  __shared__ LongRows found;
  let_next_start();
  if (blockIdx.x < d.long_blocks)
    aggregate_long_rows<Pattern, kHead, typename Share::Row, kSum>(d, found);
  else
    aggregate_short_rows<Pattern, kHead, Share, kSum>(d, found);
}

}  // namespace bitgnn::cuda::pairs
