// Sums of narrow rows over a pattern. A group of lanes owns a row and a chunk of features; a long
// row takes a whole block. Bound by the number of gathered pieces, of 8 to 64 bytes.
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
  BmmArgs root;        // for RootedPattern
};

// A row's factor, fetched long before it is needed.
__device__ __forceinline__ float narrow_row_factor(const NarrowLaunch& d, int64_t row) {
  return d.a.row_scale != nullptr ? __ldg(d.a.row_scale + row) : 1.0f;
}

// A feature of a row with factor `left` from its sum of halves; `ones` is the sum of the factors.
template <NarrowSum kSum>
__device__ __forceinline__ float narrow_value(const NarrowLaunch& d, float left, int64_t degree,
                                              int64_t feature, float sum, float ones) {
  float v = __fmul_rn(2.0f, sum);
  if constexpr (kSum == NarrowSum::kFactorsOnes)
    if (d.odd) v = __fadd_rn(v, ones);
  // The sum holds the bits of an integer of any size.
  if constexpr (kSum == NarrowSum::kPlain)
    v = __int2float_rn(2 * __float_as_int(sum) + (d.odd ? static_cast<int32_t>(degree) : 0));
  // Factors of 1 and a bias of -0 change nothing.
  const float right = d.out_scale != nullptr ? __ldg(d.out_scale + feature) : 1.0f;
  const float bias = d.a.bias != nullptr ? __ldg(d.a.bias + feature) : -0.0f;
  v = __fmul_rn(__fmul_rn(left, right), v);
  if (kSum != NarrowSum::kFactors && d.shift != nullptr) {
    const float all = kSum == NarrowSum::kPlain ? __ll2float_rn(degree) : ones;
    v = __fadd_rn(v, __fmul_rn(__fmul_rn(left, __ldg(d.shift + feature)), all));
  }
  return __fadd_rn(v, bias);
}

// Adds up pieces: floats, or for plain sums integers, which each piece holds exactly as a float.
template <NarrowSum kSum>
__device__ __forceinline__ float add_piece(float total, float piece) {
  if constexpr (kSum == NarrowSum::kPlain)
    return __int_as_float(__float_as_int(total) + static_cast<int32_t>(piece));
  return __fadd_rn(total, piece);
}

template <class Row>
__device__ __forceinline__ int features_of_chunk(const NarrowLaunch& d, int64_t chunk) {
  return static_cast<int>(
      min(d.a.features - chunk * Row::kFeatures, static_cast<int64_t>(Row::kFeatures)));
}

constexpr int kManyGroups = 16;

// One block per row: its groups take runs of pieces, then one thread per feature adds the pieces.
template <class Pattern, bool kHead, class Share, NarrowSum kSum>
__device__ __forceinline__ void aggregate_long_row(const NarrowLaunch& d,
                                                   const typename Pattern::Row& extent) {
  using Row = typename Share::Row;
  constexpr int kTotal = Row::kLanes * Row::kUsed;
  // Few groups take several pieces at a time, so that they wait for each other less often.
  constexpr int kRunPieces = Share::kGroups >= kManyGroups ? 1 : 4;
  constexpr int64_t kRun = kRunPieces * kSumPiece;
  static_assert(kTotal <= kNarrowThreads, "a thread adds up the pieces of a feature");
  __shared__ float part[Share::kGroups * kRunPieces][kTotal + 1];
  const AggregateArgs& a = d.a;
  const int64_t chunk = blockIdx.y;
  const int group = static_cast<int>(threadIdx.x) / Share::kGroup;
  const int feature = static_cast<int>(threadIdx.x);
  const int features = features_of_chunk<Row>(d, chunk);
  const int64_t row = extent.row;
  const int64_t degree = extent.degree;
  using Walk = NarrowWalk<Share, kSum>;
  Walk walk(d.table + chunk * d.chunk_stride);
  typename Pattern::template Edges<typename Walk::Lane> edges(a, extent, walk.place_in_group());
  const int first = walk.first_element();
  float total = 0.0f;
  float ones = 0.0f;
  for (int64_t base = 0; base < degree; base += Share::kGroups * kRun) {
    const int64_t own = base + group * kRun;
    int place = group * kRunPieces;
    walk.add(edges, own, static_cast<int>(max(min(degree - own, kRun), int64_t{0})),
             [&](const NarrowSums<Share>& piece) {
#pragma unroll
               for (int i = 0; i < Share::kKept; ++i) part[place][first + i] = piece.sum[i];
               part[place][kTotal] = piece.ones;
               ++place;
             });
    __syncthreads();
    const int pieces = static_cast<int>(
        min((degree - base + kSumPiece - 1) / kSumPiece, int64_t{Share::kGroups * kRunPieces}));
    if (feature < features) {
      for (int p = 0; p < pieces; ++p) {
        total = add_piece<kSum>(total, part[p][feature]);
        ones = __fadd_rn(ones, part[p][kTotal]);
      }
    }
    __syncthreads();
  }
  const auto value = [&] {
    return narrow_value<kSum>(d, narrow_row_factor(d, row), degree,
                              chunk * Row::kFeatures + feature, total, ones);
  };
  if (!kHead || d.head.head == Head::kNone) {
    if (feature < features) {
      float v = value();
      if constexpr (Pattern::kRooted) v = __fadd_rn(root_value(d.root, row, feature), v);
      a.out_float[row * a.features + chunk * Row::kFeatures + feature] = v;
    }
    return;
  }
  float* scores = part[0];
  if (feature < features) scores[feature] = value();
  __syncthreads();
  if (threadIdx.x < kWarp) {
    constexpr int kEach = (kTotal + kWarp - 1) / kWarp;
    float own[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) own[i] = scores[min(kEach * feature + i, features - 1)];
    finish_scores<kEach, kWarp, 0>(d.head, row, kFullWarp, feature == 0, true, kEach * feature,
                                   own);
  }
  __syncthreads();
}

// Long rows that a block found.
struct LongRows {
  int64_t rows[kNarrowThreads];
  int count;
};

// All threads of the block take part; each may have found a row.
template <class Pattern, bool kHead, class Share, NarrowSum kSum>
__device__ __forceinline__ void aggregate_found(const NarrowLaunch& d, LongRows& found,
                                                bool is_long, int64_t row) {
  if (!__syncthreads_or(is_long)) return;
  if (threadIdx.x == 0) found.count = 0;
  __syncthreads();
  if (is_long) found.rows[atomicAdd(&found.count, 1)] = row;
  __syncthreads();
  for (int i = 0; i < found.count; ++i)
    aggregate_long_row<Pattern, kHead, Share, kSum>(d, Pattern::row(d.a, found.rows[i]));
  __syncthreads();
}

// One group per row; if no earlier blocks take the long rows, the block then takes those it met. A
// row's root term is read early: its inputs precede the product that the sums wait for.
template <class Pattern, bool kHead, class Share, NarrowSum kSum>
__device__ __forceinline__ void aggregate_short_rows(const NarrowLaunch& d, LongRows& found) {
  using Row = typename Share::Row;
  const AggregateArgs& a = d.a;
  const int64_t chunk = blockIdx.y;
  const int64_t slot = static_cast<int64_t>(blockIdx.x - d.long_blocks) * Share::kGroups +
                       static_cast<int>(threadIdx.x) / Share::kGroup;
  const typename Pattern::Row extent = Pattern::light_row(a, d.order, slot);
  const int64_t row = extent.row;
  const int64_t degree = extent.degree;
  const float left = row >= 0 ? narrow_row_factor(d, row) : 1.0f;
  using Root = std::conditional_t<Pattern::kRooted, RootOutputs<Row::kFeatures, Share::kGroup>,
                                  NoRootOutputs>;
  const Root root(d.root, max(row, int64_t{0}), static_cast<int>(threadIdx.x) % Share::kGroup);
  wait_for_previous();
  const bool is_long = degree > d.long_degree;
  if (!is_long && row >= 0) {
    using Walk = NarrowWalk<Share, kSum>;
    Walk walk(d.table + chunk * d.chunk_stride);
    NarrowSums<Share> total{};
    typename Pattern::template Edges<typename Walk::Lane> edges(a, extent, walk.place_in_group());
    walk.add(edges, 0, static_cast<int>(degree), [&](const NarrowSums<Share>& piece) {
#pragma unroll
      for (int i = 0; i < Share::kKept; ++i)
        total.sum[i] = add_piece<kSum>(total.sum[i], piece.sum[i]);
      total.ones = __fadd_rn(total.ones, piece.ones);
    });
    const int features = features_of_chunk<Row>(d, chunk);
    const int first = walk.first_element();
    const auto value = [&](int i) {
      return narrow_value<kSum>(d, left, degree, chunk * Row::kFeatures + first + i, total.sum[i],
                                total.ones);
    };
    if (kHead && d.head.head != Head::kNone) {
      float score[Share::kKept];
#pragma unroll
      for (int i = 0; i < Share::kKept; ++i) score[i] = first + i < features ? value(i) : 0.0f;
      finish_scores<Share::kKept, Share::kGroup, Walk::kSharedLanes>(
          d.head, row, walk.mask, walk.lane % Share::kGroup == 0, walk.counts(), first, score);
    } else {
#pragma unroll
      for (int i = 0; i < Share::kKept; ++i) {
        const float added = root.at(walk.mask, first + i);
        if (first + i < features)
          a.out_float[row * a.features + chunk * Row::kFeatures + first + i] =
              Pattern::kRooted ? __fadd_rn(added, value(i)) : value(i);
      }
    }
  }
  if (d.long_blocks == 0)
    aggregate_found<Pattern, kHead, Share, kSum>(d, found,
                                                 is_long && threadIdx.x % Share::kGroup == 0, row);
}

// Sums long rows, which start first; without an order, each block searches for them among every
// long_blocks-th row.
template <class Pattern, bool kHead, class Share, NarrowSum kSum>
__device__ __forceinline__ void aggregate_long_rows(const NarrowLaunch& d, LongRows& found) {
  const AggregateArgs& a = d.a;
  wait_for_previous();
  if constexpr (Pattern::kOrdered) {
    bspmm::for_heavy_rows(a, d.order, blockIdx.x, [&](const bspmm::RowSpan& span) {
      aggregate_long_row<Pattern, kHead, Share, kSum>(d, Pattern::of(span));
    });
  } else {
    const int64_t step = static_cast<int64_t>(d.long_blocks) * kNarrowThreads;
    for (int64_t base = blockIdx.x; base < a.rows; base += step) {
      const int64_t row = base + static_cast<int64_t>(threadIdx.x) * d.long_blocks;
      aggregate_found<Pattern, kHead, Share, kSum>(
          d, found, row < a.rows && Pattern::row(a, row).degree > d.long_degree, row);
    }
  }
}

constexpr int kFewLoads = 4;

// Blocks that a multiprocessor should hold. Single lanes may hold more loads in flight, whose
// registers leave room for fewer blocks.
template <class Pattern, class Share>
constexpr int least_blocks() {
  return Share::Row::kLanes > 1 ? Pattern::kSharedBlocks : 0;
}

// blockIdx.y is the chunk of features. Without kHead there is no head.
template <class Pattern, bool kHead, class Share, NarrowSum kSum>
__global__ void __launch_bounds__(kNarrowThreads, (least_blocks<Pattern, Share>()))
    aggregate_narrow_kernel(const __grid_constant__ NarrowLaunch d) {
  __shared__ LongRows found;
  let_next_start();
  if (blockIdx.x < d.long_blocks)
    aggregate_long_rows<Pattern, kHead, Share, kSum>(d, found);
  else
    aggregate_short_rows<Pattern, kHead, Share, kSum>(d, found);
}

}  // namespace bitgnn::cuda::pairs
