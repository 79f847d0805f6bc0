// Chooses the kernel of a binary convolution by device and shape, and launches it.
#include "bitgnn/cuda/conv_launch.h"
#include "bitgnn/cuda/conv_prepare.cuh"
#include "bitgnn/cuda/conv_simt.cuh"
#include "bitgnn/cuda/conv_tiles.h"

namespace bitgnn::cuda {
namespace {

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

size_t shared_bytes(const ConvAddArgs& args, ConvTileKind kind, int vector) {
  return with_conv_tile(kind, [&](auto tile) {
    ConvMmaPlan plan{};
    return plan_conv_mma<decltype(tile)>(plan, args, vector, false);
  });
}

// What the tensor-core kernels ask for: native b1 products, groups of whole words, and numbers
// that they keep in few bits.
bool suits_mma(const ConvAddArgs& args, const Context& context) {
  constexpr int64_t kMostReach = 1 << 14, kMostTiles = 1 << 16, kMost = INT32_MAX / 4;
  const ConvArgs& c = args.conv;
  const int capability = context.device.capability;
  if (capability < 80 || capability >= 100) return false;
  if (c.groups > 1 && (c.channels / c.groups % kWordBits != 0 ||
                       (c.out_bits != nullptr && c.out_channels / c.groups % kWordBits != 0)))
    return false;
  const int64_t tiles = ceil_div(c.out_channels / c.groups, ConvTinyTile::kChannels) * c.groups;
  const int64_t reach = c.kernel_height * c.dilation_height;
  return reach < kMostReach && c.kernel_width * c.dilation_width < kMostReach &&
         c.padding_top < kMostReach && c.padding_left < kMostReach &&
         c.stride_height < kMostReach && c.stride_width < kMostReach && tiles < kMostTiles &&
         c.pixels() <= INT32_MAX && c.height <= kMost && c.width <= kMost &&
         c.out_height * c.stride_height <= kMost && c.out_width * c.stride_width <= kMost &&
         reach * c.width * words_for(c.channels) <= kMost &&
         c.out_channels * (c.taps() + kPreparedExtra) <= INT32_MAX;
}

// The largest tile of which there are enough for all multiprocessors.
ConvTileKind choose_tile(const ConvArgs& c, const Context& context) {
  const int64_t group_channels = c.out_channels / c.groups;
  const int64_t multiprocessors = context.device.sm_count;
  const auto tiles = [&](auto tile) {
    using Tile = decltype(tile);
    return ceil_div(c.pixels(), Tile::kPixels) * ceil_div(group_channels, Tile::kChannels) *
           c.groups;
  };
  if (group_channels > 64 && tiles(ConvLargeTile{}) >= 4 * multiprocessors)
    return ConvTileKind::kLarge;
  if (tiles(ConvMiddleTile{}) >= multiprocessors) return ConvTileKind::kMiddle;
  if (group_channels > 32 && tiles(ConvSmallTile{}) >= multiprocessors / 2)
    return ConvTileKind::kSmall;
  return ConvTileKind::kTiny;
}

cudaError_t run(ConvAddArgs args, ConvOutput output, const Context& context) {
  ConvArgs& c = args.conv;
  if (c.pixels() == 0) return cudaSuccess;
  const bool sums = output == ConvOutput::kSums;
  if (!suits_mma(args, context)) return launch_conv_simt(args, sums, context);
  const int vector = copy_words(c);
  // Large kernels leave room for smaller tiles only, the largest for none.
  const auto fits = [&](ConvTileKind kind) {
    const size_t bytes = shared_bytes(args, kind, vector);
    return bytes != 0 && bytes <= static_cast<size_t>(context.device.shared_bytes);
  };
  ConvTileKind kind = choose_tile(c, context);
  if (!fits(kind)) kind = ConvTileKind::kTiny;
  if (!fits(kind)) return launch_conv_simt(args, sums, context);
  const bool prefetches = c.prepared != nullptr;
  if (!prefetches) {
    auto* const prepared = static_cast<int32_t*>(context.workspace.take(
        static_cast<size_t>(c.out_channels * (c.taps() + kPreparedExtra)) * sizeof(int32_t)));
    const cudaError_t status =
        launch_conv_prepare(c, output == ConvOutput::kBits, prepared, context);
    if (status != cudaSuccess) return status;
    c.prepared = prepared;
  }
  switch (output) {
    case ConvOutput::kBits:
      return conv_mma_bits(args, kind, vector, prefetches, context);
    case ConvOutput::kValues:
      return conv_mma_values(args, kind, vector, prefetches, context);
    default:
      return conv_mma_sums(args, kind, vector, prefetches, context);
  }
}

}  // namespace

cudaError_t convolve(const ConvArgs& args, const Context& context) {
  ConvAddArgs all{};
  all.conv = args;
  const bool bits = args.out_bits != nullptr;
  return run(all, bits ? ConvOutput::kBits : ConvOutput::kValues, context);
}

cudaError_t convolve_add(const ConvAddArgs& args, const Context& context) {
  return run(args, ConvOutput::kSums, context);
}

}  // namespace bitgnn::cuda
