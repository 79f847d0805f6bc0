// Launches max pooling of packed images on CUDA.
#include "conv/arguments.h"
#include "conv/cuda/pool.cuh"

namespace bitgnn::cuda::conv {

cudaError_t pool_bits(const BitPoolArgs& args, const Context& context) {
  if (args.images * args.out_height * args.out_width * args.words == 0) return cudaSuccess;
  const auto aligned = [&](uintptr_t bytes) {
    return (reinterpret_cast<uintptr_t>(args.x) | reinterpret_cast<uintptr_t>(args.out) |
            reinterpret_cast<uintptr_t>(args.flip)) %
               bytes ==
           0;
  };
  if (args.words % 4 == 0 && aligned(16)) return launch_pool_bits<4>(args, context);
  if (args.words % 2 == 0 && aligned(8)) return launch_pool_bits<2>(args, context);
  return launch_pool_bits<1>(args, context);
}

}  // namespace bitgnn::cuda::conv
