// Launches the kernels of fully connected first layers.
#include "first_layers/arguments.h"
#include "first_layers/cuda/linear.h"

#include "first_layers/cuda/hopper/linear_bytes.cuh"
#include "first_layers/cuda/linear_few_rows.cuh"

namespace bitgnn::cuda::first_layers {
namespace {

template <class T>
cudaError_t run(const FixedConvArgs& a, const Context& context) {
  const bool vectors =
      is_aligned(a.x, 4 * sizeof(T)) && a.image_stride % 4 == 0 && a.conv.channels % 4 == 0;
  if (!vectors) return launch_fixed_linear<T, false>(a, context);
  if (a.conv.images <= kFewLinearRows / 2) return launch_fixed_linear_few<T, 1>(a, context);
  if (a.conv.images <= kFewLinearRows) return launch_fixed_linear_few<T, 2>(a, context);
  return launch_fixed_linear<T, true>(a, context);
}

}  // namespace

cudaError_t fixed_linear(const FixedConvArgs& args, const Context& context) {
  return with_fixed_type(args.type, [&](auto zero) { return run<decltype(zero)>(args, context); });
}

cudaError_t fixed_linear_bytes(const FixedConvArgs& args, const Context& context) {
  return with_fixed_type(args.type, [&](auto zero) {
    return launch_fixed_linear_bytes<decltype(zero)>(args, context);
  });
}

}  // namespace bitgnn::cuda::first_layers
