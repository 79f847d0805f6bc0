// Sums of narrow rows in order of their degrees.
#include "pairs/arguments.h"
#include "pairs/cuda/narrow/sums_launch.cuh"

namespace bitgnn::cuda::pairs {

cudaError_t launch_ordered_sums(const NarrowLaunch& d, int64_t size, bool has_factors,
                                const Context& context) {
  // One kernel for all: the one with heads, which is the faster one for rows of several lanes.
  return with_form(size, d.a.features, has_factors, [&](auto form) {
    using Row = typename decltype(form)::Row;
    if constexpr (Row::kLanes > 1) {
      using Share = NarrowShare<Row, kFewLoads, kSumSlots / 2>;
      if (takes("pairs/narrow, half of the slots", d.a.edges < kSplitDegree * d.a.rows))
        return launch_share<OrderedPattern, true, Share>(d, context);
    }
    using Share = NarrowShare<Row, kFewLoads, kSumSlots>;
    return launch_share<OrderedPattern, true, Share>(d, context);
  });
}

}  // namespace bitgnn::cuda::pairs
