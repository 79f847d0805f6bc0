// Chooses the kernel of a binary convolution by device and shape, and launches it.
#include "conv/cuda/launch.h"
#include "conv/cuda/mma_tiles.h"
#include "conv/cuda/prepare.cuh"
#include "conv/cuda/routes.h"
#include "conv/cuda/simt.cuh"

namespace bitgnn::cuda::conv {
namespace {

// Words per copy: the widest vector on whose boundary every row of words starts.
int copy_words(const ConvArgs& c) {
  const int64_t words = words_for(c.channels / c.groups), pixel_words = words_for(c.channels);
  for (const int vector : {4, 2}) {
    const size_t bytes = static_cast<size_t>(vector) * sizeof(int32_t);
    if (words % vector == 0 && pixel_words % vector == 0 && is_aligned(c.x, bytes) &&
        is_aligned(c.w, bytes))
      return vector;
  }
  return 1;
}

// Whether the tile fits in shared memory.
bool fits(const ConvAddArgs& args, ConvTileKind kind, int vector, const Context& context) {
  return with_conv_tile(kind, [&](auto tile) {
    using Tile = decltype(tile);
    ConvMmaPlan plan{};
    const size_t bytes = walks(kind) ? plan_conv_walk<Tile>(plan, args, vector, false)
                                     : plan_conv_mma<Tile>(plan, args, vector, false);
    const size_t tables = walks(kind) ? walk_table_bytes<Tile>() : 0;
    return bytes != 0 && bytes + tables <= static_cast<size_t>(context.device.shared_bytes);
  });
}

// What the tensor-core kernels require: native b1 products, groups of whole words, and sizes within
// their narrow integer fields.
bool suits_mma(const ConvAddArgs& args, const Context& context) {
  constexpr int64_t kMostReach = 1 << 14, kMostTiles = 1 << 16, kMost = INT32_MAX / 4;
  const ConvArgs& c = args.conv;
  if (!context.device.has_bit_products()) return false;
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

// Picks the largest tile that still gives about as many tiles as SMs; sums with an addend, whose
// time is spent on the addends, take smaller ones.
ConvTileKind choose_tile(const ConvArgs& c, ConvResult result, const Context& context) {
  const int64_t group_channels = c.out_channels / c.groups;
  const int64_t multiprocessors = context.device.sm_count;
  const auto tiles = [&](auto tile) {
    using Tile = decltype(tile);
    return ceil_div(c.pixels(), Tile::kPixels) * ceil_div(group_channels, Tile::kChannels) *
           c.groups;
  };
  const bool sums = result == ConvResult::kSums;
  if (tiles(ConvWideWalkTile{}) >= 2 * multiprocessors && group_channels > 64)
    return ConvTileKind::kWideWalk;
  if (tiles(ConvWalkTile{}) >= (sums ? 2 * multiprocessors : multiprocessors * 9 / 10))
    return ConvTileKind::kWalk;
  if (tiles(ConvMiddleTile{}) >= (sums ? multiprocessors : multiprocessors * 7 / 10))
    return ConvTileKind::kMiddle;
  if (tiles(ConvSmallTile{}) >= multiprocessors * 4 / 10) return ConvTileKind::kSmall;
  return ConvTileKind::kTiny;
}

// Rows of few words are bound by gathers and comparisons, where the other kernels are faster.
bool goes_to_warpgroups(const ConvAddArgs& args, const Context& context) {
  constexpr int kLeastChannels = 128;
  return args.conv.channels >= kLeastChannels && conv_wgmma_fits(args, context);
}

// Whether the box kernel takes the problem, which needs enough pixels.
bool goes_to_boxes(const ConvAddArgs& args, ConvResult output, const Context& context) {
  return output != ConvResult::kValues && conv_box_fits(args, output == ConvResult::kSums, context);
}

// Whether the strip kernel takes the problem. Measured faster than the warpgroup kernel up to 128
// channels, or 256 for sums, and wherever the latter has too few pixels.
bool goes_to_strips(const ConvAddArgs& args, ConvResult output, const Context& context) {
  constexpr int64_t kFewChannels = 128, kChannelsOfSums = 256;
  const bool sums = output == ConvResult::kSums;
  if (output == ConvResult::kValues || !conv_strips_fit(args, sums, context)) return false;
  return args.conv.channels <= (sums ? kChannelsOfSums : kFewChannels) ||
         !goes_to_warpgroups(args, context);
}

cudaError_t run_strips(const ConvAddArgs& args, bool sums, const ConvPool& pool, bool prefetches,
                       const Context& context) {
  constexpr int64_t kWarpChannels = 256;  // a warp's registers hold weights of at most this many
  const bool splits = args.conv.channels > kWarpChannels;
  if (sums)
    return splits ? conv_split_strips_sums(args, prefetches, context)
                  : conv_strips_sums(args, prefetches, context);
  return splits ? conv_split_strips_bits(args.conv, pool, prefetches, context)
                : conv_strips_bits(args.conv, pool, prefetches, context);
}

// The tile nearest to the chosen one that consists of whole pooling windows; persistent tiles do
// not support pooling.
bool choose_pooled_tile(const ConvAddArgs& args, const Context& context, ConvTileKind& kind) {
  const ConvTileKind chosen = choose_tile(args.conv, ConvResult::kBits, context);
  if (walks(chosen)) return false;
  for (const ConvTileKind tried : {chosen, ConvTileKind::kSmall, ConvTileKind::kMiddle}) {
    kind = tried;
    const int pixels = with_conv_tile(kind, [](auto tile) { return int{decltype(tile)::kPixels}; });
    if (holds_windows(args.conv, pixels) && fits(args, kind, copy_words(args.conv), context))
      return true;
  }
  return false;
}

cudaError_t run(ConvAddArgs args, ConvResult output, const ConvPool& pool, const Context& context) {
  ConvArgs& c = args.conv;
  if (c.pixels() == 0) return cudaSuccess;
  const bool sums = output == ConvResult::kSums;
  if (!suits_mma(args, context)) return launch_conv_simt(args, sums, context);
  const int vector = copy_words(c);
  // Long rows and large kernels leave room only for other tiles; the largest leave room for none.
  ConvTileKind kind = choose_tile(c, output, context);
  if (pool.pools && !choose_pooled_tile(args, context, kind)) kind = ConvTileKind::kMiddle;
  if (walks(kind) && !fits(args, kind, vector, context))
    kind = kind == ConvTileKind::kWalk ? ConvTileKind::kMiddle : ConvTileKind::kLarge;
  if (!fits(args, kind, vector, context)) kind = ConvTileKind::kTiny;
  if (!fits(args, kind, vector, context)) return launch_conv_simt(args, sums, context);
  const bool prefetches = c.prepared != nullptr;
  if (!prefetches) {
    auto* const prepared = static_cast<int32_t*>(context.workspace.take(
        static_cast<size_t>(c.out_channels * (c.taps() + kPreparedExtra)) * sizeof(int32_t)));
    const cudaError_t status =
        launch_conv_prepare(c, output == ConvResult::kBits, prepared, context);
    if (status != cudaSuccess) return status;
    c.prepared = prepared;
  }
  if (!pool.pools && goes_to_boxes(args, output, context))
    return conv_box(args, sums, prefetches, context);
  if (goes_to_strips(args, output, context))
    return run_strips(args, sums, pool, prefetches, context);
  if (!pool.pools && goes_to_warpgroups(args, context)) return conv_wgmma(args, sums, context);
  switch (output) {
    case ConvResult::kBits:
      return conv_mma_bits(args, kind, vector, pool, prefetches, context);
    case ConvResult::kValues:
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
  return run(all, bits ? ConvResult::kBits : ConvResult::kValues, ConvPool{}, context);
}

bool pools_in_convolution(const ConvArgs& args, const BitPoolArgs& pool, const Context& context) {
  const bool halves = pool.kernel_height == 2 && pool.kernel_width == 2 &&
                      pool.stride_height == 2 && pool.stride_width == 2 && pool.padding_top == 0 &&
                      pool.padding_left == 0;
  ConvAddArgs all{};
  all.conv = args;
  if (!halves || !suits_mma(all, context)) return false;
  // Up to this size, fusing the pool into strips saves more than the box kernel.
  constexpr int64_t kMostPixels = 1 << 17;
  if (args.pixels() > kMostPixels && goes_to_boxes(all, ConvResult::kBits, context)) return false;
  if (goes_to_strips(all, ConvResult::kBits, context)) return args.stride_height == 1;
  ConvTileKind kind{};
  return !goes_to_warpgroups(all, context) && choose_pooled_tile(all, context, kind);
}

cudaError_t convolve_pooled(const ConvArgs& args, const int32_t* flip, const Context& context) {
  ConvAddArgs all{};
  all.conv = args;
  return run(all, ConvResult::kBits, ConvPool{true, flip}, context);
}

cudaError_t convolve_add(const ConvAddArgs& args, const Context& context) {
  return run(args, ConvResult::kSums, ConvPool{}, context);
}

}  // namespace bitgnn::cuda::conv
