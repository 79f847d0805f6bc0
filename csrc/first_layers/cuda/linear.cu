// Chooses and launches the kernel of a fully connected first layer.
#include "first_layers/arguments.h"
#include "first_layers/cuda/linear.h"

#include "first_layers/cuda/hopper/linear_bytes.cuh"
#include "first_layers/cuda/linear_few_rows.cuh"

namespace bitgnn::cuda::first_layers {
namespace {

constexpr int64_t kFewRows = 16;

template <class T, bool kVector>
cudaError_t run_plain(const FixedConvArgs& a, const Context& context) {
  if (a.conv.images <= kFewRows / 2) return launch_fixed_linear_few<T, kVector, 1>(a, context);
  if (a.conv.images <= kFewRows) return launch_fixed_linear_few<T, kVector, 2>(a, context);
  return launch_fixed_linear<T, kVector>(a, context);
}

template <class T>
cudaError_t run(const FixedConvArgs& a, const Context& context) {
  if (a.conv.images > kFewRows && suits_fixed_linear_bytes(a, context))
    return launch_fixed_linear_bytes<T>(a, context);
  const bool vectors =
      is_aligned(a.x, 4 * sizeof(T)) && a.image_stride % 4 == 0 && a.conv.channels % 4 == 0;
  return vectors ? run_plain<T, true>(a, context) : run_plain<T, false>(a, context);
}

}  // namespace

bool suits_fixed_linear(const FixedConvArgs& args, const Context& context) {
  const ConvArgs& c = args.conv;
  return context.device.has_tensor_cores() && c.kernel_height * c.kernel_width == 1 &&
         c.out_height * c.out_width == 1 && c.padding_top == 0 && c.padding_left == 0 &&
         args.channel_stride == 1 && linear_bytes(c.channels) <= context.device.shared_bytes;
}

cudaError_t fixed_linear(const FixedConvArgs& args, const Context& context) {
  return with_fixed_type(args.type, [&](auto zero) { return run<decltype(zero)>(args, context); });
}

}  // namespace bitgnn::cuda::first_layers
