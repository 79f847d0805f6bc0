// Aggregation of ternary rows over a pattern in CSR.
#include "bitgnn/cuda/aggregate_bits_launch.cuh"
#include "bitgnn/cuda/ternary_launch.h"

namespace bitgnn::cuda {

cudaError_t aggregate_ternary(const AggregateArgs& args, const Context& context) {
  AggregateArgs planes = args;
  planes.cols *= TernaryRows::kRows;
  planes.edges *= TernaryRows::kRows;
  planes.x_stride /= TernaryRows::kRows;
  return launch_neighbours<TernaryRows>(planes, context);
}

}  // namespace bitgnn::cuda
