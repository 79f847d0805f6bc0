// Chooses the kernel of an aggregation of packed rows over a CSR pattern, and launches it.
#include "bspmm/arguments.h"
#include "bspmm/cuda/bits_launch.cuh"
#include "bspmm/cuda/routes.h"
#include "core/cuda/variants.h"

namespace bitgnn::cuda::bspmm {
namespace {

constexpr int kMostStagedWords = 8;  // of a row, for which two lanes suffice

// True if most rows are read from memory, not from the L2 cache.
bool exceeds_cache(const AggregateArgs& a, const Device& device) {
  return a.cols * a.x_stride * static_cast<int64_t>(sizeof(int32_t)) > device.cache_bytes;
}

}  // namespace

cudaError_t aggregate_bits(const AggregateArgs& args, const Context& context) {
  CsrRows source{args};
  cudaError_t status = cudaSuccess;
  if (takes("bspmm/bits, padded", !reads_in(args, kAccessWords) && suits_padding(args)))
    status = pad_table(source.a, context);
  if (status == cudaSuccess) status = make_bounds(source.a, context, source.bounds);
  if (status != cudaSuccess) return status;
  const int64_t words = words_for(args.features);
  if (takes("bspmm/staged", words <= kMostStagedWords && exceeds_cache(source.a, context.device)))
    return aggregate_beyond_cache(source.a, source.bounds, context);
  if (reads_in(source.a, kAccessWords)) return launch_vectors(source, context);
  if (reads_in(args, 2))
    return words <= 2 ? launch<2, 1>(source, context) : launch<2, 4>(source, context);
  if (words <= 1) return launch<1, 1>(source, context);
  if (words <= 8) return launch<1, 4>(source, context);
  return launch<1, 16>(source, context);
}

}  // namespace bitgnn::cuda::bspmm
