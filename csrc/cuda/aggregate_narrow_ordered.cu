// Sums of narrow rows in the order of their degrees.
#include "bitgnn/cuda/narrow_sums_launch.cuh"

namespace bitgnn::cuda {

cudaError_t launch_ordered_sums(const NarrowLaunch& d, int64_t size, bool has_factors,
                                const Context& context) {
  return launch_narrow_sums<OrderedPattern, true>(d, size, has_factors, context);
}

}  // namespace bitgnn::cuda
