// Launches the sums over narrow rows, for a kind of pattern.
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "bspmm/arguments.h"
#include "core/cuda/variants.h"
#include "pairs/cuda/narrow/forms.cuh"
#include "pairs/cuda/narrow/sums.cuh"

namespace bitgnn::cuda::pairs {

constexpr int64_t kLongFactor = 8;             // long rows have this multiple of the mean degree,
constexpr int64_t kLeastLong = 2 * kSumPiece;  // but at least two pieces
constexpr int64_t kManyEdges = 1 << 23;        // edges from which long rows must start early,
constexpr unsigned kLongBlocks = 2;            // in this many blocks per multiprocessor

// Loads in flight per lane: few if rows have several lanes, more if single lanes hold little enough
// for them.
constexpr int kSharedLoads = kFewLoads;
constexpr int kSingleLoads = 8;

// A fragment of ordered rows of several lanes has half of the slots' lanes up to this mean degree.
constexpr int64_t kSplitDegree = 32;

template <class Pattern, bool kHead, class Share>
cudaError_t launch_share(NarrowLaunch d, const Context& context) {
  using Row = typename Share::Row;
  const AggregateArgs& a = d.a;
  const auto multiprocessors = static_cast<unsigned>(context.device.sm_count);
  d.long_degree = std::max(kLeastLong, kLongFactor * (a.edges / a.rows));
  d.long_blocks = a.edges < kManyEdges ? 0 : kLongBlocks * multiprocessors;
  if constexpr (Pattern::kOrdered) {
    d.long_degree = std::numeric_limits<int64_t>::max();
    d.long_blocks = kLongBlocks * multiprocessors * Row::kLanes;
    d.order.heavy_blocks = d.head.head == Head::kNone ? d.long_blocks / Row::kLanes : d.long_blocks;
  }
  const dim3 grid(grid_size(d.long_blocks + ceil_div(a.rows, Share::kGroups)),
                  grid_size(ceil_div(a.features, Row::kFeatures)));
  const auto launch = [&](auto sum) {
    return launch_dependent(aggregate_narrow_kernel<Pattern, kHead, Share, decltype(sum)::value>,
                            grid, kNarrowThreads, 0, context, d);
  };
  if constexpr (Row::kFactor == FactorPlace::kNone)
    return launch(std::integral_constant<NarrowSum, NarrowSum::kPlain>());
  else if (d.odd || d.shift != nullptr)
    return launch(std::integral_constant<NarrowSum, NarrowSum::kFactorsOnes>());
  else
    return launch(std::integral_constant<NarrowSum, NarrowSum::kFactors>());
}

template <class Pattern, bool kHead, class Row>
cudaError_t launch_sums(const NarrowLaunch& d, const Context& context) {
  constexpr int kLoads = Row::kLanes > 1 ? kSharedLoads : kSingleLoads;
  return launch_share<Pattern, kHead, NarrowShare<Row, kLoads, kSumSlots>>(d, context);
}

// Sums the rows that narrow_product() wrote for a product of `size` features.
template <class Pattern, bool kHead>
cudaError_t launch_narrow_sums(const NarrowLaunch& d, int64_t size, bool has_factors,
                               const Context& context) {
  return with_form(size, d.a.features, has_factors, [&](auto form) {
    return launch_sums<Pattern, kHead, typename decltype(form)::Row>(d, context);
  });
}

// The same with a head; in the order of d, with or without a head. Compiled separately.
cudaError_t launch_headed_sums(const NarrowLaunch& d, int64_t size, bool has_factors,
                               const Context& context);
cudaError_t launch_ordered_sums(const NarrowLaunch& d, int64_t size, bool has_factors,
                                const Context& context);

}  // namespace bitgnn::cuda::pairs
