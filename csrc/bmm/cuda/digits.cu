// Launches the product of packed rows with weights of three digits.
#include "bmm/cuda/digits.cuh"
#include "bmm/cuda/launch.h"

namespace bitgnn::cuda::bmm {

cudaError_t bits_linear(const BitsLinearArgs& args, const Context& context) {
  if (args.rows == 0 || args.out_features == 0) return cudaSuccess;
  // Few outputs: a tile at a time, in as many warps as possible.
  if (args.out_features <= kMmaColumns) return launch_bits_linear<1, 1, 4>(args, context);
  // Two slabs a warp halve the reads of digits, once there are enough rows for all warps.
  constexpr int64_t kManyRows = 1 << 17;
  return args.rows >= kManyRows ? launch_bits_linear<2, 2, 2>(args, context)
                                : launch_bits_linear<1, 2, 2>(args, context);
}

}  // namespace bitgnn::cuda::bmm
