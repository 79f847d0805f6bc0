// Launches of sums over narrow rows, for a kind of pattern.
#pragma once

#include <algorithm>
#include <type_traits>

#include "bitgnn/cuda/aggregate_narrow.cuh"
#include "bitgnn/cuda/narrow_forms.cuh"

namespace bitgnn::cuda {

constexpr int64_t kLongFactor = 8;             // long rows have so many times the mean degree,
constexpr int64_t kLeastLong = 2 * kSumPiece;  // but two pieces at least
constexpr int64_t kManyEdges = 1 << 23;        // from here on long rows must start early,
constexpr unsigned kLongBlocks = 2;            // in so many blocks a multiprocessor

template <class Pattern, bool kHead, class Row>
cudaError_t launch_sums(NarrowLaunch d, const Context& context) {
  // Single lanes hold little enough for more loads in flight.
  using Share = NarrowShare<Row, Row::kLanes == 1 ? 8 : 4>;
  const AggregateArgs& a = d.a;
  d.chunk_stride = a.cols * Row::kPitchBytes;
  d.long_degree = std::max(kLeastLong, kLongFactor * (a.edges / a.rows));
  d.long_blocks =
      a.edges < kManyEdges ? 0 : kLongBlocks * static_cast<unsigned>(context.device.sm_count);
  const dim3 grid(grid_size(d.long_blocks + ceil_div(a.rows, Share::kGroups)),
                  grid_size(ceil_div(a.features, Row::kFeatures)));
  const auto launch = [&](auto sum) {
    return launch_dependent(aggregate_narrow_kernel<Pattern, kHead, Share, decltype(sum)::value>,
                            grid, kNarrowThreads, 0, context, d);
  };
  if constexpr (Row::kFactor == FactorPlace::kNone)
    return launch(std::integral_constant<NarrowSum, NarrowSum::kPlain>());
  else if (d.odd)
    return launch(std::integral_constant<NarrowSum, NarrowSum::kFactorsOdd>());
  else
    return launch(std::integral_constant<NarrowSum, NarrowSum::kFactors>());
}

// Sums of the rows that narrow_product() wrote for a product of `size` features.
template <class Pattern, bool kHead>
cudaError_t launch_narrow_sums(const NarrowLaunch& d, int64_t size, bool has_factors,
                               const Context& context) {
  return with_form(size, d.a.features, has_factors, [&](auto form) {
    return launch_sums<Pattern, kHead, typename decltype(form)::Row>(d, context);
  });
}

// The same with a head, and over column blocks with or without one; compiled apart.
cudaError_t launch_headed_sums(const NarrowLaunch& d, int64_t size, bool has_factors,
                               const Context& context);
cudaError_t launch_blocked_sums(const NarrowLaunch& d, int64_t size, bool has_factors,
                                const Context& context);

}  // namespace bitgnn::cuda
