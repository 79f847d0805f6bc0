// Aggregation of packed rows over a CSR pattern.
#include "bspmm/cuda/bits_launch.cuh"
#include "bspmm/cuda/launch.h"

namespace bitgnn::cuda::bspmm {

cudaError_t aggregate_bits(const AggregateArgs& args, const Context& context) {
  const int64_t words = words_for(args.features);
  if (reads_in(args, kAccessWords)) return launch_vectors<CsrRows>(args, context);
  if (padding_pays(args)) {
    AggregateArgs padded = args;
    const cudaError_t status = pad_table(padded, context);
    return status == cudaSuccess ? launch_vectors<CsrRows>(padded, context) : status;
  }
  if (reads_in(args, 2))
    return words <= 2 ? launch<CsrRows, 2, 1>(args, context) : launch<CsrRows, 2, 4>(args, context);
  if (words <= 1) return launch<CsrRows, 1, 1>(args, context);
  if (words <= 8) return launch<CsrRows, 1, 4>(args, context);
  return launch<CsrRows, 1, 16>(args, context);
}

}  // namespace bitgnn::cuda::bspmm
