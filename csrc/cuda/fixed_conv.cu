// Chooses the kernel of a first layer, images in fixed point times weights of +-1, and launches it.
#include "bitgnn/cuda/fixed_conv.cuh"

#include "bitgnn/cuda/fixed_conv_plain.cuh"
#include "bitgnn/cuda/fixed_linear.h"
#include "bitgnn/cuda/image_launch.h"

namespace bitgnn::cuda {
namespace {

constexpr int kVectorElements = 4;

// The tile of output pixels and what follows from it; rows of pixels are cut into equal parts.
void set_tile(FixedPlan& plan, const ConvArgs& c, int height, int width) {
  plan.tile_height = height;
  plan.tile_width = width;
  plan.tiles_down = static_cast<int>(ceil_div(c.out_height, height));
  plan.tiles_across = static_cast<int>(ceil_div(c.out_width, width));
  plan.tiles = c.images * plan.tiles_down * plan.tiles_across;
  plan.region_height = static_cast<int>((height - 1) * c.stride_height +
                                        (c.kernel_height - 1) * c.dilation_height + 1);
  plan.region_width =
      static_cast<int>((width - 1) * c.stride_width + (c.kernel_width - 1) * c.dilation_width + 1);
  // Whole words behind the last tap.
  plan.pitch = static_cast<int>(ceil_div(plan.region_width * c.channels, 4) * 4 + 4);
}

// Lines as stage_region() walks them are whole vectors at aligned addresses.
bool has_vectors(const FixedConvArgs& a, bool channels_last) {
  const ConvArgs& c = a.conv;
  const auto whole = [](int64_t elements) { return elements % kVectorElements == 0; };
  const int64_t bytes = kVectorElements * element_bytes(a.type);
  if (reinterpret_cast<uintptr_t>(a.x) % bytes != 0 || !whole(a.image_stride)) return false;
  if (channels_last) return whole(c.width * c.channels);
  return a.pixel_stride == 1 && whole(c.width) && whole(a.channel_stride);
}

// False where the arguments are beyond the tensor-core kernel.
bool plan_fixed(FixedPlan& plan, const FixedConvArgs& a, const Context& context) {
  constexpr int64_t kMostSide = 1 << 14;      // of images and kernels
  constexpr int64_t kMostProducts = 1 << 12;  // of an output
  constexpr int kMostColumns = 64;            // of a tile
  constexpr int kMostPixels = 256;
  constexpr int kLeastPixels = 64;
  const ConvArgs& c = a.conv;
  const int64_t products = c.taps() * c.channels;
  if (c.channels > kWordBits || products > kMostProducts || c.height > kMostSide ||
      c.width > kMostSide || c.dilation_height > kMostSide || c.dilation_width > kMostSide ||
      c.stride_height > kMostSide || c.stride_width > kMostSide || c.padding_top > kMostSide ||
      c.padding_left > kMostSide || c.out_channels > (1 << 20))
    return false;
  plan.channels_last = a.channel_stride == 1 && a.pixel_stride == c.channels;
  plan.vectors = has_vectors(a, plan.channels_last);
  plan.aligned = c.stride_width * c.channels % 4 == 0 && c.dilation_width == 1;
  plan.taps = static_cast<int>(c.taps());
  plan.segments = plan.aligned ? static_cast<int>(c.kernel_height) : 1;
  plan.segment_taps = static_cast<int>(plan.aligned ? c.kernel_width : c.taps());
  plan.segment_words = static_cast<int>(ceil_div(plan.segment_taps * c.channels, 4));
  plan.steps = static_cast<int>(ceil_div(plan.segments * plan.segment_words, kFixedStepWords));
  plan.block_channels = static_cast<int>(
      c.out_channels <= kFixedWarpChannels ? kFixedWarpChannels : 2 * kFixedWarpChannels);
  const int64_t columns = ceil_div(c.out_channels, plan.block_channels);
  const int width = static_cast<int>(ceil_div(c.out_width, ceil_div(c.out_width, kMostColumns)));
  int height = static_cast<int>(std::min<int64_t>(c.out_height, std::max(1, kMostPixels / width)));
  const int64_t most_bytes = context.device.shared_bytes / 2 - 1024;  // two blocks at a time
  const int64_t wanted = 2 * int64_t{context.device.sm_count};
  for (;; height = (height + 1) / 2) {
    set_tile(plan, c, height, width);
    const bool fits = plan.bytes() <= most_bytes;
    const bool small = height * width <= kLeastPixels;
    if (fits && (small || plan.tiles * columns >= wanted)) return true;
    if (height == 1) return plan.bytes() <= context.device.shared_bytes;
  }
}

template <class T>
cudaError_t run_tensor(const FixedConvArgs& a, const FixedPlan& plan, const Context& context) {
  if (plan.vectors)
    return plan.aligned ? launch_fixed_conv<T, true, kVectorElements>(a, plan, context)
                        : launch_fixed_conv<T, false, kVectorElements>(a, plan, context);
  return plan.aligned ? launch_fixed_conv<T, true, 1>(a, plan, context)
                      : launch_fixed_conv<T, false, 1>(a, plan, context);
}

template <class T>
cudaError_t run(const FixedConvArgs& a, const Context& context) {
  FixedPlan plan{};
  if (context.device.capability >= 80 && plan_fixed(plan, a, context))
    return run_tensor<T>(a, plan, context);
  return launch_fixed_conv_plain<T>(a, context);
}

}  // namespace

cudaError_t convolve_fixed(const FixedConvArgs& args, const Context& context) {
  if (args.conv.pixels() * args.conv.out_channels == 0) return cudaSuccess;
  if (suits_fixed_linear(args, context)) return fixed_linear(args, context);
  switch (args.type) {
    case FloatType::kFloat32:
      return run<float>(args, context);
    case FloatType::kFloat16:
      return run<__half>(args, context);
    case FloatType::kBFloat16:
      return run<__nv_bfloat16>(args, context);
    case FloatType::kUInt8:
      return run<uint8_t>(args, context);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace bitgnn::cuda
