// Aggregation of ternary rows over a CSR pattern.
#include "bspmm/arguments.h"
#include "bspmm/cuda/bits_launch.cuh"
#include "ternary/arguments.h"

namespace bitgnn::cuda::bspmm {
namespace {

constexpr int kNarrowWords = 2;  // words of a plane that is read in one access of so many

}  // namespace

cudaError_t aggregate_ternary(const AggregateArgs& args, const Context& context) {
  AggregateArgs planes = args;
  planes.cols *= TernaryRows::kRows;
  planes.edges *= TernaryRows::kRows;
  planes.x_stride /= TernaryRows::kRows;
  // Planes that are no whole accesses are copied, so that they need no lanes of their own.
  const bool narrow = words_for(planes.features) <= kNarrowWords;
  const int access = narrow ? kNarrowWords : kAccessWords;
  if (planes.cols > 0 && !reads_in(planes, access)) {
    const cudaError_t status = pad_table(planes, context, access);
    if (status != cudaSuccess) return status;
  }
  return narrow ? launch<kNarrowWords, 1>(TernaryRows{planes}, context)
                : launch_vectors(TernaryRows{planes}, context);
}

}  // namespace bitgnn::cuda::bspmm
