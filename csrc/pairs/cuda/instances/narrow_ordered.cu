// Sums of narrow rows in order of their degrees.
#include "pairs/arguments.h"
#include "pairs/cuda/narrow/sums_launch.cuh"

namespace bitgnn::cuda::pairs {

cudaError_t launch_ordered_sums(const NarrowLaunch& d, int64_t size, bool has_factors,
                                const Context& context) {
  // For rows of several lanes, the kernel with heads is the faster one.
  return with_form(size, d.a.features, has_factors, [&](auto form) {
    using Row = typename decltype(form)::Row;
    if constexpr (Row::kLanes == 1)
      if (d.head.head == Head::kNone) return launch_sums<OrderedPattern, false, Row>(d, context);
    return launch_sums<OrderedPattern, true, Row>(d, context);
  });
}

}  // namespace bitgnn::cuda::pairs
