// Launches warpgroup products of float rows that are quantised on the fly.
#include "int8/cuda/hopper/wgmma_launch.cuh"

namespace bitgnn::cuda::int8 {

cudaError_t int8_wgmma_floats(const Int8BmmArgs& args, int columns, const Context& context) {
  return args.out_bits != nullptr
             ? launch_int8_wgmma<Int8Output::kBits, true>(args, columns, context)
             : launch_int8_wgmma<Int8Output::kFloat, true>(args, columns, context);
}

}  // namespace bitgnn::cuda::int8
