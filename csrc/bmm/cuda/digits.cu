// Launches the product of packed rows with three-digit weights.
#include "bmm/arguments.h"
#include "bmm/cuda/digits.cuh"

namespace bitgnn::cuda::bmm {

cudaError_t bits_linear(const BitsLinearArgs& args, const Context& context) {
  if (args.rows == 0 || args.out_features == 0) return cudaSuccess;
  // Few outputs: one tile per pass, with as many resident warps as possible.
  if (args.out_features <= kMmaColumns) return launch_bits_linear<1, 1, 4>(args, context);
  // With enough rows for all warps, two slabs per warp halve the digit reads.
  constexpr int64_t kManyRows = 1 << 17;
  return args.rows >= kManyRows ? launch_bits_linear<2, 2, 2>(args, context)
                                : launch_bits_linear<1, 2, 2>(args, context);
}

}  // namespace bitgnn::cuda::bmm
