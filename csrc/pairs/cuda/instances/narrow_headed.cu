// Sums of narrow rows followed by a head.
#include "pairs/cuda/narrow/sums_launch.cuh"

namespace bitgnn::cuda::pairs {

cudaError_t launch_headed_sums(const NarrowLaunch& d, int64_t size, bool has_factors,
                               const Context& context) {
  return launch_narrow_sums<CsrPattern, true>(d, size, has_factors, context);
}

}  // namespace bitgnn::cuda::pairs
