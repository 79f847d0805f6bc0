// Launches warpgroup products of packed 8-bit rows.
#include "int8/cuda/hopper/wgmma_launch.cuh"

namespace bitgnn::cuda::int8 {

bool holds_wgmma(int64_t size, int columns, const Context& context) {
  return wgmma_bytes(size, columns, true) + kLeastStages * kStageBytes <=
         context.device.shared_bytes;
}

cudaError_t int8_wgmma_codes(const Int8BmmArgs& args, int columns, const Context& context) {
  return with_int8_output(args, [&](auto output) {
    return launch_int8_wgmma<decltype(output)::value, false>(args, columns, context);
  });
}

}  // namespace bitgnn::cuda::int8
