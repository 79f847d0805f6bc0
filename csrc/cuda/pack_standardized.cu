// Packing float rows into bits by comparison with their own mean, on CUDA.
#include "bitgnn/cuda/pack_standardized.cuh"

namespace bitgnn::cuda {

cudaError_t pack_standardized(const StandardizedPackArgs& args, int64_t rows,
                              const Context& context) {
  switch (args.type) {
    case FloatType::kFloat32:
      return launch_pack_standardized<float>(args, rows, context);
    case FloatType::kFloat64:
      return launch_pack_standardized<double>(args, rows, context);
    case FloatType::kFloat16:
      return launch_pack_standardized<__half>(args, rows, context);
    case FloatType::kBFloat16:
      return launch_pack_standardized<__nv_bfloat16>(args, rows, context);
    case FloatType::kUInt8:
      return launch_pack_standardized<uint8_t>(args, rows, context);
  }
  return cudaErrorInvalidValue;
}

}  // namespace bitgnn::cuda
