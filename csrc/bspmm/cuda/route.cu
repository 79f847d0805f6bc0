// Chooses the kernel of an aggregation of packed rows over a CSR pattern, and launches it.
#include "bspmm/arguments.h"
#include "bspmm/cuda/bits_launch.cuh"
#include "core/cuda/variants.h"

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
  CsrRows source{args};
  cudaError_t status = cudaSuccess;
  if (takes("bspmm/bits, padded", !reads_in(args, kAccessWords) && suits_padding(args)))
    status = pad_table(source.a, context);
  if (status == cudaSuccess) status = make_bounds(source.a, context, source.bounds);
  if (status != cudaSuccess) return status;
  if (reads_in(source.a, kAccessWords)) return launch_vectors(source, context);
  const int64_t words = words_for(args.features);
  if (reads_in(args, 2))
    return words <= 2 ? launch<2, 1>(source, context) : launch<2, 4>(source, context);
  if (words <= 1) return launch<1, 1>(source, context);
  if (words <= 8) return launch<1, 4>(source, context);
  return launch<1, 16>(source, context);
}

}  // namespace bitgnn::cuda::bspmm
