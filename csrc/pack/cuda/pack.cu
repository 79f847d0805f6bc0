// Packs float rows into bits and unpacks them, on CUDA.
#include "pack/cuda/expand.cuh"
#include "pack/cuda/launch.h"
#include "pack/cuda/narrow.cuh"
#include "pack/cuda/pack.cuh"

namespace bitgnn::cuda::pack {
namespace {

template <class T>
cudaError_t pack_typed(const PackArgs& args, int64_t rows, const Context& context) {
  if (args.cols > 0 && args.cols < kWordBits && args.row_stride == args.cols &&
      args.scale == nullptr)
    return launch_pack_narrow<T>(args, rows, context);
  const DenseRows<T> source{static_cast<const T*>(args.x), args.row_stride};
  return launch_pack(source, args, rows, context);
}

}  // namespace

cudaError_t pack(const PackArgs& args, int64_t rows, const Context& context) {
  return with_float_type(
      args.type, [&](auto zero) { return pack_typed<decltype(zero)>(args, rows, context); });
}

cudaError_t unpack(const int32_t* words, int64_t rows, int64_t size, const float* scale, float* out,
                   const Context& context) {
  return launch_expand(ExpandedBits{words, scale, words_for(size)}, rows, size, size, out, context);
}

}  // namespace bitgnn::cuda::pack
