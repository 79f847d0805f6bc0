// Chooses the kernel of an aggregation of packed rows over a CSR pattern, and launches it.
#include "bspmm/cuda/bits_launch.cuh"
#include "bspmm/cuda/launch.h"

namespace bitgnn::cuda::bspmm {
namespace {

// True if a copy with aligned rows pays: its rows are read often, and there is much to read.
bool suits_padding(const AggregateArgs& a) {
  constexpr int64_t kLeastUses = 4;         // reads per row of the table
  constexpr int64_t kLeastReads = 1 << 21;  // words
  const int64_t words = words_for(a.features);
  return words > 2 && a.edges >= kLeastUses * a.cols && a.edges * words >= kLeastReads;
}

}  // namespace

cudaError_t aggregate_bits(const AggregateArgs& args, const Context& context) {
  const int64_t words = words_for(args.features);
  if (reads_in(args, kAccessWords)) return launch_vectors<CsrRows>(args, context);
  if (suits_padding(args)) {
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
