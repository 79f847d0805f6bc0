// Packs float rows into bits and unpacks them, on CUDA.
#include "pack/arguments.h"
#include "pack/cuda/expand.cuh"
#include "pack/cuda/pack.cuh"

namespace bitgnn::cuda::pack {

cudaError_t pack(const PackArgs& args, int64_t rows, const Context& context) {
  return with_float_type(args.type, [&](auto zero) {
    using T = decltype(zero);
    return launch_pack(DenseRows<T>{static_cast<const T*>(args.x), args.row_stride}, args, rows,
                       context);
  });
}

cudaError_t unpack(const int32_t* words, int64_t rows, int64_t size, const float* scale, float* out,
                   const Context& context) {
  return launch_expand(ExpandedBits{words, scale, words_for(size)}, rows, size, size, out, context);
}

}  // namespace bitgnn::cuda::pack
