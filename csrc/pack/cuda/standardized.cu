// Packs float rows into bits by comparing them with their own mean, on CUDA.
#include "pack/arguments.h"
#include "pack/cuda/standardized.cuh"

namespace bitgnn::cuda::pack {

cudaError_t pack_standardized(const StandardizedPackArgs& args, int64_t rows,
                              const Context& context) {
  return with_float_type(args.type, [&](auto zero) {
    return launch_pack_standardized<decltype(zero)>(args, rows, context);
  });
}

}  // namespace bitgnn::cuda::pack
