// Launches the aggregation of packed rows over a column-blocked pattern.
#include "bspmm/cuda/blocked.cuh"
#include "bspmm/cuda/launch.h"

#include <algorithm>

#include "bspmm/cuda/bits.cuh"

namespace bitgnn::cuda::bspmm {
namespace {

constexpr int64_t kFewEdges = 16;  // mean degree below which a row has at most four splits

template <int kWords, int kColumns>
cudaError_t launch_blocked(const BlockedArgs& args, const Context& context) {
  using FewEach = ShortRows<16, 5, 4, 256, 4>;
  using ManyEach = ShortRows<32, 6, 4, 256, 3>;
  constexpr int kSplits = kWarp / kColumns, kFewSplits = std::min(4, kSplits);
  const BlockedRows source{args};
  if (args.csr.edges < kFewEdges * args.csr.rows)
    return launch_rows<FewEach, kWords, kFewSplits, kColumns>(source, args.csr, context);
  return launch_rows<ManyEach, kWords, kSplits, kColumns>(source, args.csr, context);
}

cudaError_t launch_vectors(const BlockedArgs& args, const Context& context) {
  const int64_t words = words_for(args.csr.features);
  if (words <= 4) return launch_blocked<4, 1>(args, context);
  if (words <= 8) return launch_blocked<4, 2>(args, context);
  return launch_blocked<4, 4>(args, context);
}

}  // namespace

cudaError_t aggregate_blocked(const BlockedArgs& args, const Context& context) {
  const int64_t words = words_for(args.csr.features);
  if (reads_in(args.csr, kAccessWords)) return launch_vectors(args, context);
  if (padding_pays(args.csr)) {
    BlockedArgs padded = args;
    const cudaError_t status = pad_table(padded.csr, context);
    return status == cudaSuccess ? launch_vectors(padded, context) : status;
  }
  if (words <= 1) return launch_blocked<1, 1>(args, context);
  if (words <= 2 && reads_in(args.csr, 2)) return launch_blocked<2, 1>(args, context);
  return words <= 4 ? launch_blocked<1, 4>(args, context) : launch_blocked<1, 8>(args, context);
}

}  // namespace bitgnn::cuda::bspmm
