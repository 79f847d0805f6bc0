// Packing float rows into bits and back, on CUDA.
#include "bitgnn/cuda/pack_expand.cuh"
#include "bitgnn/cuda/pack_kernel.cuh"
#include "bitgnn/cuda/pack_narrow.cuh"

namespace bitgnn::cuda {
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
  switch (args.type) {
    case FloatType::kFloat32:
      return pack_typed<float>(args, rows, context);
    case FloatType::kFloat64:
      return pack_typed<double>(args, rows, context);
    case FloatType::kFloat16:
      return pack_typed<__half>(args, rows, context);
    case FloatType::kBFloat16:
      return pack_typed<__nv_bfloat16>(args, rows, context);
    case FloatType::kUInt8:
      return pack_typed<uint8_t>(args, rows, context);
  }
  return cudaErrorInvalidValue;
}

cudaError_t unpack(const int32_t* words, int64_t rows, int64_t size, const float* scale, float* out,
                   const Context& context) {
  return launch_expand(ExpandedBits{words, scale, words_for(size)}, rows, size, size, out, context);
}

}  // namespace bitgnn::cuda
