// Sums of narrow rows plus a root term, the products of the nodes' own packed rows.
#include "pairs/cuda/narrow/sums_launch.cuh"

namespace bitgnn::cuda::pairs {

cudaError_t launch_rooted_sums(const NarrowLaunch& d, int64_t size, bool has_factors,
                               const Context& context) {
  return with_form(size, d.a.features, has_factors, [&](auto form) -> cudaError_t {
    using Row = typename decltype(form)::Row;
    if constexpr (Row::kLanes == 1)
      return launch_sums<RootedPattern, false, Row>(d, context);
    else
      return cudaErrorInvalidValue;
  });
}

}  // namespace bitgnn::cuda::pairs
