// Launches products of float rows, quantised on the fly, with mma.sync.
#include <type_traits>

#include "core/cuda/with_quantised_type.h"
#include "int8/cuda/mma.cuh"
#include "int8/cuda/routes.h"

namespace bitgnn::cuda::int8 {
namespace {

template <class Source, Int8Output kOutput>
cudaError_t run(const Int8BmmArgs& args, bool small, const Context& context) {
  return small ? launch_int8_mma<Source, SmallTile, kOutput>(args, context)
               : launch_int8_mma<Source, LargeTile, kOutput>(args, context);
}

template <Int8Output kOutput>
cudaError_t run(const Int8BmmArgs& args, bool small, const Context& context) {
  return with_quantised_type(args.pack->type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, float>)
      if (!has_vector_rows(*args.pack))
        return run<FloatSource<T, false>, kOutput>(args, small, context);
    return run<FloatSource<T, true>, kOutput>(args, small, context);
  });
}

}  // namespace

cudaError_t int8_mma_floats(const Int8BmmArgs& args, bool small, const Context& context) {
  return args.out_bits != nullptr ? run<Int8Output::kBits>(args, small, context)
                                  : run<Int8Output::kFloat>(args, small, context);
}

}  // namespace bitgnn::cuda::int8
