// Chooses and launches the kernel of a first layer, fixed-point images times weights of +-1.
#include "first_layers/cuda/conv.cuh"

#include "core/cuda/variants.h"
#include "first_layers/arguments.h"
#include "first_layers/cuda/conv_plain.cuh"
#include "first_layers/cuda/hopper/linear_bytes.cuh"
#include "first_layers/cuda/linear.cuh"
#include "first_layers/cuda/linear.h"

namespace bitgnn::cuda::first_layers {
namespace {

// Whether every output reads one pixel of contiguous features, few enough for the kernels.
bool suits_linear(const FixedConvArgs& args, const Context& context) {
  const ConvArgs& c = args.conv;
  return context.device.has_tensor_cores() && c.kernel_height * c.kernel_width == 1 &&
         c.out_height * c.out_width == 1 && c.padding_top == 0 && c.padding_left == 0 &&
         args.channel_stride == 1 && linear_bytes(c.channels) <= context.device.shared_bytes;
}

// Whether, of these, Hopper's products of bytes take the problem.
bool suits_linear_bytes(const FixedConvArgs& args, const Context& context) {
  const ConvArgs& c = args.conv;
  return context.device.is_hopper() && c.images > kFewLinearRows &&
         c.channels <= kMostByteFeatures &&
         ByteLayout{static_cast<int>(words_for(c.channels))}.bytes() <= context.device.shared_bytes;
}

// Sets the tile of output pixels and the sizes that follow from it.
void set_tile(FixedPlan& plan, const ConvArgs& c, int height, int width) {
  plan.tile_height = height;
  plan.tile_width = width;
  plan.tiles_down = static_cast<int>(ceil_div(c.out_height, height));
  plan.tiles_across = static_cast<int>(ceil_div(c.out_width, width));
  plan.tiles = static_cast<int>(c.images * plan.tiles_down * plan.tiles_across);
  plan.region_height = static_cast<int>((height - 1) * c.stride_height +
                                        (c.kernel_height - 1) * c.dilation_height + 1);
  const int64_t columns =
      (width - 1) * c.stride_width + (c.kernel_width - 1) * c.dilation_width + 1;
  plan.pitch = static_cast<int>(ceil_div(plan.shift + columns, kFixedVector)) * kFixedVector;
}

// How rows of pixels can be read: as vectors if these are aligned and divide the rows.
FixedSource source_of(const FixedConvArgs& a) {
  const ConvArgs& c = a.conv;
  const auto whole = [](int64_t elements) { return elements % kFixedVector == 0; };
  const int64_t bytes = kFixedVector * element_bytes(a.type);
  if (reinterpret_cast<uintptr_t>(a.x) % bytes != 0 || !whole(a.image_stride) || !whole(c.width))
    return FixedSource::kValues;
  if (a.pixel_stride == 1 && whole(a.channel_stride)) return FixedSource::kPlanes;
  return a.pixel_stride == 3 && a.channel_stride == 1 ? FixedSource::kTriples
                                                      : FixedSource::kValues;
}

// Approximate cycles per tile.
int64_t tile_cost(const FixedPlan& plan) {
  const int pixel_warps = kFixedThreads / 32 * kFixedWarpChannels / plan.block_channels;
  const int64_t rounds = ceil_div(plan.slabs(), pixel_warps);
  return 2000 + plan.plane_words() + rounds * (250 * int64_t{plan.steps} + 400);
}

// Returns false if the arguments exceed what the tensor-core kernel supports.
bool plan_fixed(FixedPlan& plan, const FixedConvArgs& a, const Context& context) {
  constexpr int64_t kMostSide = 1 << 14;      // of images and kernels, in pixels
  constexpr int64_t kMostProducts = 1 << 12;  // per output
  constexpr int64_t kMostColumns = 256;       // per tile
  constexpr int64_t kMostOutputs = 1 << 30;   // pixels in all images
  constexpr int64_t kMostPixels = 1024;
  const ConvArgs& c = a.conv;
  if (c.channels > kWordBits || c.taps() * c.channels > kMostProducts || c.height > kMostSide ||
      c.width > kMostSide || c.dilation_height > kMostSide || c.dilation_width > kMostSide ||
      c.stride_height > kMostSide || c.stride_width > kMostSide || c.padding_top > kMostSide ||
      c.padding_left > kMostSide || c.out_channels > (1 << 20) || c.pixels() > kMostOutputs)
    return false;
  plan.source = source_of(a);
  plan.taps = static_cast<int>(c.taps());
  plan.channel_words = static_cast<int>(ceil_div(c.channels, 4));
  plan.steps = static_cast<int>(ceil_div(c.taps() * plan.channel_words, kFixedStepWords));
  plan.block_channels = static_cast<int>(
      c.out_channels <= kFixedWarpChannels ? kFixedWarpChannels : 2 * kFixedWarpChannels);
  plan.shift = static_cast<int>((kFixedVector - c.padding_left % kFixedVector) % kFixedVector);
  // Rows of pixels are split into equal parts that start at aligned columns.
  const int64_t parts = ceil_div(c.out_width, kMostColumns);
  const int64_t width = parts == 1
                            ? c.out_width
                            : ceil_div(ceil_div(c.out_width, parts), kFixedVector) * kFixedVector;
  const int64_t columns = ceil_div(c.out_channels, plan.block_channels);
  const int64_t blocks = 2 * int64_t{context.device.sm_count};
  const int64_t most_bytes = context.device.shared_bytes / 2 - 1024;  // two resident blocks
  const int64_t most_height = std::clamp<int64_t>(kMostPixels / width, 1, c.out_height);
  int best = 0;
  int64_t least = INT64_MAX;
  for (int height = 1; height <= most_height; ++height) {
    set_tile(plan, c, height, static_cast<int>(width));
    if (plan.bytes() > (height == 1 ? context.device.shared_bytes : most_bytes)) break;
    const int64_t all = int64_t{plan.tiles} * columns;
    // Two blocks on an SM share its execution units.
    const int64_t share = all > context.device.sm_count ? 6 : 5;
    const int64_t cost = ceil_div(all, blocks) * share * tile_cost(plan);
    if (cost <= least) {
      least = cost;
      best = height;
    }
  }
  if (best > 0) set_tile(plan, c, best, static_cast<int>(width));
  return best > 0;
}

template <class T>
cudaError_t run_tensor(const FixedConvArgs& a, const FixedPlan& plan, const Context& context) {
  switch (plan.source) {
    case FixedSource::kPlanes:
      return launch_fixed_conv<T, FixedSource::kPlanes>(a, plan, context);
    case FixedSource::kTriples:
      return launch_fixed_conv<T, FixedSource::kTriples>(a, plan, context);
    default:
      return launch_fixed_conv<T, FixedSource::kValues>(a, plan, context);
  }
}

template <class T>
cudaError_t run(const FixedConvArgs& a, const Context& context) {
  FixedPlan plan{};
  if (takes("first_layers/conv", context.device.has_tensor_cores() && plan_fixed(plan, a, context)))
    return run_tensor<T>(a, plan, context);
  return launch_fixed_conv_plain<T>(a, context);
}

}  // namespace

cudaError_t convolve_fixed(const FixedConvArgs& args, const Context& context) {
  if (args.conv.pixels() * args.conv.out_channels == 0) return cudaSuccess;
  if (takes("first_layers/linear", suits_linear(args, context)))
    return takes("first_layers/hopper/linear_bytes", suits_linear_bytes(args, context))
               ? fixed_linear_bytes(args, context)
               : fixed_linear(args, context);
  return with_fixed_type(args.type, [&](auto zero) { return run<decltype(zero)>(args, context); });
}

}  // namespace bitgnn::cuda::first_layers
