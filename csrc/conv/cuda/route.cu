// Chooses the kernel of a binary convolution by device and shape, and launches it.
#include <algorithm>

#include "conv/arguments.h"
#include "conv/cuda/hopper/boxes_plan.h"
#include "conv/cuda/hopper/wgmma_plan.h"
#include "conv/cuda/mma_tiles.h"
#include "conv/cuda/prepare.cuh"
#include "conv/cuda/routes.h"
#include "conv/cuda/simt.cuh"
#include "core/cuda/variants.h"

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
bool suits_tile(const ConvAddArgs& args, ConvTileKind kind, int vector, const Context& context) {
  return with_conv_tile(kind, [&](auto tile, bool walks) {
    using Tile = decltype(tile);
    ConvMmaPlan plan{};
    const size_t bytes = walks ? plan_conv_walk<Tile>(plan, args, vector, false)
                               : plan_conv_mma<Tile>(plan, args, vector, false);
    const size_t tables = walks ? walk_table_bytes<Tile>() : 0;
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
  if (takes("conv/mma_persistent, wide",
            tiles(ConvWideWalkTile{}) >= 2 * multiprocessors && group_channels > 64))
    return ConvTileKind::kWideWalk;
  if (takes("conv/mma_persistent",
            tiles(ConvWalkTile{}) >= (sums ? 2 * multiprocessors : multiprocessors * 9 / 10)))
    return ConvTileKind::kWalk;
  if (takes("conv/mma, middle tile",
            tiles(ConvMiddleTile{}) >= (sums ? multiprocessors : multiprocessors * 7 / 10)))
    return ConvTileKind::kMiddle;
  if (takes("conv/mma, small tile", tiles(ConvSmallTile{}) >= multiprocessors * 4 / 10))
    return ConvTileKind::kSmall;
  return ConvTileKind::kTiny;
}

// Whether the warpgroup kernel takes the problem and is worthwhile for it: Hopper, one group of a
// multiple of 128 channels, outputs in multiples of 32, kernels of up to 7 x 7, strides of 1 and 2,
// no dilation, 16-bit addends and sums, enough tiles for the device. Rows of fewer words
// are bound by gathers and comparisons, where the other kernels are faster.
bool suits_warpgroups(const ConvAddArgs& args, const Context& context) {
  const ConvArgs& a = args.conv;
  if (!context.device.is_hopper() || a.groups != 1 || a.dilation_height != 1 ||
      a.dilation_width != 1 || a.channels == 0 || a.channels % 128 != 0 ||
      a.out_channels % 32 != 0 || !is_aligned(a.x) || !is_aligned(a.w) || a.pixels() > INT32_MAX)
    return false;
  if (args.addend != nullptr &&
      (args.addend_wide || args.addend_channels % 32 != 0 || !is_aligned(args.addend)))
    return false;
  if (args.sums != nullptr && args.sums_wide) return false;
  ConvPlan plan;
  const int columns = conv_tile_columns(a);
  if (!plan_conv(plan, a, columns, context.device)) return false;
  return takes("conv/hopper/wgmma",
               static_cast<int64_t>(plan.tiles) * plan.column_tiles >= context.device.sm_count / 2);
}

// Below these, strips have less latency.
constexpr int64_t kLeastSteps = 2300, kLeastStepsOfSums = 5000, kLeastStepsOfShortSums = 30000;

bool suits_box_sums(const ConvBoxPlan& plan) {
  return plan.units() * plan.steps >=
         (plan.pieces == 1 ? kLeastStepsOfShortSums : kLeastStepsOfSums);
}

// Excludes long rows, unless there are few tiles, and images whose rows fill units badly: there it
// is faster to load every piece once for all outputs and to multiply nothing but weights.
bool suits_box_bits(const ConvBoxPlan& plan, const ConvArgs& a, const Device& device) {
  constexpr int64_t kShortPieces = 2, kLongPieces = 4, kFewUnits = 40;
  const int64_t units = plan.units();
  if (units * plan.steps < kLeastSteps || plan.pieces > kLongPieces) return false;
  if (plan.pieces > kShortPieces && units > kFewUnits * device.sm_count) return false;
  const int64_t outputs = a.pixels() * plan.column_tiles;
  return 4 * outputs >= 3 * units * kBoxUnitRows;
}

// Whether the box kernel takes the problem and is worthwhile for it: Hopper, one group of 128 or a
// multiple of 256 channels, a multiple of 128 outputs, kernels of up to 3 x 3, strides of 1 and 2,
// no dilation, output bits or 16-bit addends and sums, enough pixels for the device.
bool suits_boxes(const ConvAddArgs& args, ConvResult output, const Context& context) {
  const ConvArgs& a = args.conv;
  const bool adds = output == ConvResult::kSums;
  if (output == ConvResult::kValues) return false;
  if (!context.device.is_hopper() || !is_aligned(a.x) || !is_aligned(a.w)) return false;
  if (!adds && a.out_bits == nullptr) return false;
  if (args.addend != nullptr) {
    // Limits of a tensor copy's box.
    constexpr int64_t kMostSide = 256, kMostStep = 8;
    const int64_t width = std::min<int64_t>(a.out_width, kBoxUnitRows);
    if (args.addend_wide || args.addend_channels % kBoxPartChannels != 0 ||
        !is_aligned(args.addend) || args.addend_stride_width > kMostStep ||
        args.addend_stride_height > kMostStep || width * args.addend_stride_width > kMostSide ||
        kBoxUnitRows / width * args.addend_stride_height > kMostSide)
      return false;
  }
  if (args.sums != nullptr && (args.sums_wide || !is_aligned(args.sums))) return false;
  ConvBoxPlan plan;
  if (adds)
    return takes("conv/hopper/boxes",
                 plan_conv_box(plan, args, ConvOutput::kSums, kBoxSumGroups, context.device) &&
                     suits_box_sums(plan));
  return takes("conv/hopper/boxes", plan_conv_box_bits(plan, args, context.device) != 0 &&
                                        suits_box_bits(plan, a, context.device));
}

// Whether the strip kernels can take the problem: one group of 64, 128, 256 or 512 channels,
// outputs in multiples of 64, 3 x 3 kernels with at most one row or column of taps outside at each
// side, strides of 1 or 2; output bits, or 16-bit sums with a 16-bit addend.
bool suits_strip_shape(const ConvAddArgs& args, bool adds, const Context& context) {
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

// Whether they take the problem. Measured faster than the warpgroup kernel up to 128 channels, or
// 256 for sums, and wherever the latter has too few pixels.
bool suits_strips(const ConvAddArgs& args, ConvResult output, const Context& context) {
  constexpr int64_t kFewChannels = 128, kChannelsOfSums = 256;
  const bool sums = output == ConvResult::kSums;
  if (output == ConvResult::kValues || !suits_strip_shape(args, sums, context)) return false;
  return takes("conv/strips", args.conv.channels <= (sums ? kChannelsOfSums : kFewChannels) ||
                                  !suits_warpgroups(args, context));
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

// Whether a tile of `pixels` pixels consists of whole 2 x 2 windows.
bool suits_windows(const ConvArgs& c, int pixels) {
  return c.out_height % 2 == 0 && c.out_width % 2 == 0 && pixels % (2 * c.out_width) == 0;
}

// The tile nearest to the chosen one that consists of whole pooling windows; persistent tiles do
// not support pooling.
bool choose_pooled_tile(const ConvAddArgs& args, const Context& context, ConvTileKind& kind) {
  const ConvTileKind chosen = choose_tile(args.conv, ConvResult::kBits, context);
  if (walks(chosen)) return false;
  for (const ConvTileKind tried : {chosen, ConvTileKind::kSmall, ConvTileKind::kMiddle}) {
    kind = tried;
    const int pixels =
        with_conv_tile(kind, [](auto tile, bool) { return int{decltype(tile)::kPixels}; });
    if (suits_windows(args.conv, pixels) && suits_tile(args, kind, copy_words(args.conv), context))
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
  if (walks(kind) && !suits_tile(args, kind, vector, context))
    kind = kind == ConvTileKind::kWalk ? ConvTileKind::kMiddle : ConvTileKind::kLarge;
  if (!suits_tile(args, kind, vector, context)) kind = ConvTileKind::kTiny;
  if (!suits_tile(args, kind, vector, context)) return launch_conv_simt(args, sums, context);
  const bool prefetches = c.prepared != nullptr;
  if (!prefetches) {
    auto* const prepared = static_cast<int32_t*>(context.workspace.take(
        static_cast<size_t>(c.out_channels * (c.taps() + kPreparedExtra)) * sizeof(int32_t)));
    const cudaError_t status =
        launch_conv_prepare(c, output == ConvResult::kBits, prepared, context);
    if (status != cudaSuccess) return status;
    c.prepared = prepared;
  }
  if (!pool.pools && suits_boxes(args, output, context))
    return conv_box(args, sums, prefetches, context);
  if (suits_strips(args, output, context)) return run_strips(args, sums, pool, prefetches, context);
  if (!pool.pools && suits_warpgroups(args, context)) return conv_wgmma(args, sums, context);
  switch (output) {
    case ConvResult::kBits:
      return conv_mma<ConvResult::kBits>(args, kind, vector, pool, prefetches, context);
    case ConvResult::kValues:
      return conv_mma<ConvResult::kValues>(args, kind, vector, {}, prefetches, context);
    default:
      return conv_mma<ConvResult::kSums>(args, kind, vector, {}, prefetches, context);
  }
}

// Whether there is a kernel for this convolution and the pooling of its bits.
bool suits_pooled(const ConvArgs& args, const BitPoolArgs& pool, const Context& context) {
  const bool halves = pool.kernel_height == 2 && pool.kernel_width == 2 &&
                      pool.stride_height == 2 && pool.stride_width == 2 && pool.padding_top == 0 &&
                      pool.padding_left == 0;
  ConvAddArgs all{};
  all.conv = args;
  if (!halves || !suits_mma(all, context)) return false;
  // Up to this size, fusing the pool into strips saves more than the box kernel.
  constexpr int64_t kMostPixels = 1 << 17;
  if (args.pixels() > kMostPixels && suits_boxes(all, ConvResult::kBits, context)) return false;
  if (suits_strips(all, ConvResult::kBits, context)) return args.stride_height == 1;
  ConvTileKind kind{};
  return !suits_warpgroups(all, context) && choose_pooled_tile(all, context, kind);
}

}  // namespace

cudaError_t convolve(const ConvArgs& args, const Context& context) {
  ConvAddArgs all{};
  all.conv = args;
  const bool bits = args.out_bits != nullptr;
  return run(all, bits ? ConvResult::kBits : ConvResult::kValues, ConvPool{}, context);
}

cudaError_t convolve_pooled(const ConvArgs& args, const BitPoolArgs& pool, bool* pools,
                            const Context& context) {
  *pools = suits_pooled(args, pool, context);
  if (!*pools) return cudaSuccess;
  ConvAddArgs all{};
  all.conv = args;
  return run(all, ConvResult::kBits, ConvPool{true, pool.flip}, context);
}

cudaError_t convolve_add(const ConvAddArgs& args, const Context& context) {
  return run(args, ConvResult::kSums, ConvPool{}, context);
}

}  // namespace bitgnn::cuda::conv
