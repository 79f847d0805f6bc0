// Aggregation of packed rows over a CSR pattern.
#include "bspmm/cuda/bits_launch.cuh"
#include "bspmm/cuda/launch.h"

namespace bitgnn::cuda::bspmm {

cudaError_t aggregate_bits(const AggregateArgs& args, const Context& context) {
  return launch_neighbours<CsrRows>(args, context);
}

}  // namespace bitgnn::cuda::bspmm
