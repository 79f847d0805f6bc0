// Launches the packing of float rows as codes.
#include "int8/cuda/pack.cuh"

#include "core/cuda/with_quantised_type.h"
#include "int8/arguments.h"

namespace bitgnn::cuda::int8 {

cudaError_t pack_int8(const Int8PackArgs& args, const Context& context) {
  if (args.rows == 0 || args.size == 0) return cudaSuccess;
  return with_quantised_type(args.type, [&](auto zero) {
    using T = decltype(zero);
    return has_vector_rows(args) ? launch_pack_int8<T, true>(args, context)
                                 : launch_pack_int8<T, false>(args, context);
  });
}

}  // namespace bitgnn::cuda::int8
