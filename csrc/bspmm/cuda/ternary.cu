// Aggregation of ternary rows over a CSR pattern.
#include "bspmm/cuda/bits_launch.cuh"
#include "bspmm/cuda/launch.h"
#include "ternary/cuda/launch.h"

namespace bitgnn::cuda::bspmm {

cudaError_t aggregate_ternary(const AggregateArgs& args, const Context& context) {
  AggregateArgs planes = args;
  planes.cols *= TernaryRows::kRows;
  planes.edges *= TernaryRows::kRows;
  planes.x_stride /= TernaryRows::kRows;
  return launch_neighbours<TernaryRows>(planes, context);
}

}  // namespace bitgnn::cuda::bspmm
