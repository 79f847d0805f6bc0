// Chooses the kernel of a binary convolution by device and shape, and launches it.
#include "bitgnn/cuda/conv_launch.h"

#include "bitgnn/cuda/conv_mma.cuh"
#include "bitgnn/cuda/conv_prepare.cuh"
#include "bitgnn/cuda/conv_simt.cuh"
#include "bitgnn/cuda/conv_wgmma.h"

namespace bitgnn::cuda {
namespace {

using SmallTile = ConvTile<2, 2, 2, 1, 4, 3>;   // 32 pixels by 64 channels
using MiddleTile = ConvTile<4, 2, 1, 1, 4, 3>;  // 64 by 64
using LargeTile = ConvTile<4, 2, 1, 2, 8, 1>;   // 128 by 128

bool aligned(const void* p, size_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

// Words that one copy moves: all that begin on its boundary.
int copy_words(const ConvArgs& c) {
  const int64_t words = words_for(c.channels / c.groups), pixel_words = words_for(c.channels);
  for (const int vector : {4, 2}) {
    const size_t bytes = static_cast<size_t>(vector) * sizeof(int32_t);
    if (words % vector == 0 && pixel_words % vector == 0 && aligned(c.x, bytes) &&
        aligned(c.w, bytes))
      return vector;
  }
  return 1;
}

// What the tensor-core kernel asks for: native b1 products, groups of whole words, and indices
// that it keeps in few bits.
bool suits_mma(const ConvAddArgs& args, const Context& context) {
  constexpr int64_t kMostTaps = 255, kMostReach = 1 << 14, kMostTiles = 1 << 16;
  const ConvArgs& c = args.conv;
  const int capability = context.device.capability;
  if (capability < 80 || capability >= 100) return false;
  if (c.groups > 1 && (c.channels / c.groups % kWordBits != 0 ||
                       (c.out_bits != nullptr && c.out_channels / c.groups % kWordBits != 0)))
    return false;
  const int64_t group_tiles = ceil_div(c.out_channels / c.groups, SmallTile::kChannels);
  const int64_t image_words = c.height * c.width * words_for(c.channels);
  ConvMmaPlan plan{};
  return c.kernel_height <= kMostTaps && c.kernel_width <= kMostTaps &&
         c.kernel_height * c.dilation_height < kMostReach &&
         c.kernel_width * c.dilation_width < kMostReach && c.padding_top < kMostReach &&
         c.padding_left < kMostReach && group_tiles * c.groups < kMostTiles &&
         c.pixels() <= INT32_MAX && image_words <= INT32_MAX / 4 && c.height < INT32_MAX / 4 &&
         c.width < INT32_MAX / 4 &&
         c.kernel_height * c.dilation_height * c.width * words_for(c.channels) <= INT32_MAX / 2 &&
         plan_conv_mma<LargeTile, 1>(plan, args, false, false) != 0;
}

template <class Tile>
cudaError_t run_mma(const ConvAddArgs& args, bool adds, bool prefetches, const Context& context) {
  switch (copy_words(args.conv)) {
    case 4:
      return launch_conv_mma<Tile, 4>(args, adds, prefetches, context);
    case 2:
      return launch_conv_mma<Tile, 2>(args, adds, prefetches, context);
    default:
      return launch_conv_mma<Tile, 1>(args, adds, prefetches, context);
  }
}

cudaError_t run(ConvAddArgs args, bool adds, const Context& context) {
  ConvArgs& c = args.conv;
  if (c.pixels() == 0) return cudaSuccess;
  if (!suits_mma(args, context)) return launch_conv_simt(args, adds, context);
  const bool prefetches = c.prepared != nullptr;
  if (!prefetches) {
    auto* const prepared = static_cast<int32_t*>(context.workspace.take(
        static_cast<size_t>(c.out_channels * (c.taps() + kPreparedExtra)) * sizeof(int32_t)));
    const cudaError_t status =
        launch_conv_prepare(c, c.out_bits != nullptr && !adds, prepared, context);
    if (status != cudaSuccess) return status;
    c.prepared = prepared;
  }
  if (conv_wgmma_fits(args, context)) return conv_wgmma(args, adds, context);
  const int64_t group_channels = c.out_channels / c.groups;
  const int64_t multiprocessors = context.device.sm_count;
  const auto tiles = [&](int64_t pixels, int64_t channels) {
    return ceil_div(c.pixels(), pixels) * ceil_div(group_channels, channels) * c.groups;
  };
  if (group_channels > 64 && tiles(LargeTile::kPixels, LargeTile::kChannels) >= 4 * multiprocessors)
    return run_mma<LargeTile>(args, adds, prefetches, context);
  if (tiles(MiddleTile::kPixels, MiddleTile::kChannels) >= multiprocessors)
    return run_mma<MiddleTile>(args, adds, prefetches, context);
  return run_mma<SmallTile>(args, adds, prefetches, context);
}

}  // namespace

cudaError_t convolve(const ConvArgs& args, const Context& context) {
  ConvAddArgs all{};
  all.conv = args;
  return run(all, false, context);
}

cudaError_t convolve_add(const ConvAddArgs& args, const Context& context) {
  return run(args, true, context);
}

}  // namespace bitgnn::cuda
