// Launches the strip convolution with a residual addend, and checks which problems strips take.
#include <algorithm>

#include "conv/cuda/strips/sums.cuh"

namespace bitgnn::cuda::conv {

bool conv_strips_fit(const ConvAddArgs& args, bool adds, const Context& context) {
  const ConvArgs& c = args.conv;
  if (!context.device.has_bit_products()) return false;
  constexpr int64_t kTile = 64;  // outputs, or two tiles of half as many
  if ((c.channels != 64 && c.channels != 128 && c.channels != 256 && c.channels != 512) ||
      c.groups != 1 || c.out_channels < 1 || c.out_channels % kTile != 0 || c.kernel_height != 3 ||
      c.kernel_width != 3 || c.dilation_height != 1 || c.dilation_width != 1 ||
      c.stride_height != c.stride_width || c.stride_height > 2)
    return false;
  const auto reaches = [&](int64_t out, int64_t padding, int64_t size) {
    return padding <= 1 && size >= 2 && (out - 1) * c.stride_height - padding + 2 <= size;
  };
  constexpr int64_t kMost = int64_t{1} << 30;
  if (!reaches(c.out_height, c.padding_top, c.height) ||
      !reaches(c.out_width, c.padding_left, c.width) || c.pixels() > kMost ||
      c.height * c.width > kMost)
    return false;
  const auto piece = static_cast<size_t>(std::min<int64_t>(c.channels / 8, 32));
  if (!is_aligned(c.x, piece) || !is_aligned(c.w, piece)) return false;
  if (!adds) return c.out_bits != nullptr;
  return !args.addend_wide && !(args.sums_wide && args.sums != nullptr) &&
         is_aligned(args.sums, 16) && is_aligned(args.addend, 16) && args.addend_channels % 8 == 0;
}

cudaError_t conv_strips_sums(const ConvAddArgs& args, bool prefetches, const Context& context) {
  return with_strip_shape(args.conv, [&](auto words, auto stride) {
    return launch_conv_strip_sums<decltype(words)::value, decltype(stride)::value>(args, prefetches,
                                                                                   context);
  });
}

}  // namespace bitgnn::cuda::conv
