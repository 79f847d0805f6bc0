// Launches products of few packed rows.
#include "bmm/arguments.h"
#include "bmm/cuda/few_rows.cuh"

namespace bitgnn::cuda::bmm {
namespace {

template <int kRowTiles>
cudaError_t run(const BmmArgs& args, const Context& context) {
  const bool vectors = words_for(args.size) % 4 == 0 && is_aligned(args.x) && is_aligned(args.w);
  // Wide blocks halve the row reads, but there must be enough of them for most multiprocessors.
  const int64_t wide = ceil_div(args.out_features, 2 * kMmaRows);
  return 4 * wide >= 3 * context.device.sm_count
             ? launch_bmm_few<kRowTiles, 2>(args, vectors, context)
             : launch_bmm_few<kRowTiles, 1>(args, vectors, context);
}

}  // namespace

cudaError_t bmm_few(const BmmArgs& args, const Context& context) {
  return args.rows <= kMmaColumns ? run<1>(args, context) : run<2>(args, context);
}

}  // namespace bitgnn::cuda::bmm
