// Launches products of packed 8-bit rows with mma.sync.
#include "int8/cuda/mma.cuh"
#include "int8/cuda/routes.h"

namespace bitgnn::cuda::int8 {

cudaError_t int8_mma_codes(const Int8BmmArgs& args, bool small, const Context& context) {
  return with_int8_output(args, [&](auto output) {
    constexpr Int8Output kOutput = decltype(output)::value;
    return small ? launch_int8_mma<CodeSource, SmallTile, kOutput>(args, context)
                 : launch_int8_mma<CodeSource, LargeTile, kOutput>(args, context);
  });
}

}  // namespace bitgnn::cuda::int8
