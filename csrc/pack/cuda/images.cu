// Packs images with planar channels into bits, on CUDA.
#include "pack/arguments.h"
#include "pack/cuda/images.cuh"

namespace bitgnn::cuda::pack {

cudaError_t pack_images(const ImagePackArgs& args, const Context& context) {
  if (args.images == 0 || args.pixels == 0 || args.channels == 0) return cudaSuccess;
  return with_float_type(
      args.type, [&](auto zero) { return launch_pack_images<decltype(zero)>(args, context); });
}

}  // namespace bitgnn::cuda::pack
