// Tiling of binary convolution for tensor cores: tile shapes and the parameters of a launch.
#pragma once

#include <algorithm>

#include "conv/cuda/routes.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::conv {

// Output of a launch: bits, values (floats or bare sums), or sums with an addend and their bits.
enum class ConvResult : int { kBits, kValues, kSums };

// Warps along pixels, channels and the reduction, and the fragments (16 pixels by 8 channels) of
// each warp.
template <int kPixelWarpsOf, int kChannelWarpsOf, int kSumWarpsOf, int kPixelFragmentsOf,
          int kChannelFragmentsOf, int kBlocksOf>
struct ConvTile {
  static constexpr int kPixelWarps = kPixelWarpsOf, kChannelWarps = kChannelWarpsOf;
  static constexpr int kSumWarps = kSumWarpsOf;
  static constexpr int kPixelFragments = kPixelFragmentsOf;
  static constexpr int kChannelFragments = kChannelFragmentsOf;
  static constexpr int kBlocks = kBlocksOf;  // resident per SM
  static constexpr int kPixels = kPixelWarps * kPixelFragments * 16;
  static constexpr int kChannels = kChannelWarps * kChannelFragments * 8;
  static constexpr int kChannelWords = kChannels / 32;
  static constexpr int kThreads = kPixelWarps * kChannelWarps * kSumWarps * 32;
  // Half fragments of 8 pixels each; the warps that split a reduction divide them for the epilogue.
  static constexpr int kHalves = kPixelFragments * 2;
  static constexpr int kOwnHalves = kHalves / kSumWarps;
  static_assert(kChannelFragments % 4 == 0 && kHalves % kSumWarps == 0);
  // Words exchanged by the warps that split a reduction.
  static constexpr int kExchanged = kSumWarps > 1 ? kPixels * kChannels * kSumWarps : 0;
};

constexpr int kConvDepth = 3;  // stages of the ring, two of them prefetched

// Classes of output positions along an axis, by which taps lie inside the image: each of the first
// `lead` and last `trail` positions is a class of its own; all positions between them, where every
// tap is inside, form one class.
struct ConvClasses {
  int lead, trail, inner;  // inner: first of the trailing positions
  int count;
};

// Sizes are in words unless noted.
struct ConvMmaPlan {
  int words;           // of a group, per pixel
  int pixel_words;     // of x
  int out_words;       // of output bits, per pixel
  int row_words;       // under the kernel, i.e. per row of weights
  int chunk_words;     // of a row, per stage
  int chunks;          // per row
  int group_size;      // input channels per group
  int group_channels;  // output channels per group
  int group_tiles;     // channel tiles per group
  int pixels;
  int height, width, out_height, out_width;
  int kernel_height, kernel_width;
  int stride_height, stride_width, padding_top, padding_left, dilation_height, dilation_width;
  int row_copies;   // copies per row
  int copies_room;  // entries, rounded up to keep 16-byte alignment
  int tap_sums;     // entries
  int class_sums;   // entries
  int table_at;     // offset of the tables, after the ring
  ConvClasses rows, columns;
  bool prefetches;      // weights were written before the previous kernel
  bool vectors;         // store eight outputs at a time
  bool addend_vectors;  // load eight addends at a time
  ConvPool pool;        // pooling, for bits only
};

inline ConvClasses conv_classes(int64_t out, int64_t stride, int64_t padding, int64_t dilation,
                                int64_t kernel, int64_t size) {
  const auto up = [](int64_t a, int64_t b) { return a <= 0 ? 0 : (a + b - 1) / b; };
  const int64_t lead = std::min(out, up(padding, stride));
  const int64_t inner = std::min(out, up(size + padding - (kernel - 1) * dilation, stride));
  ConvClasses c{};
  if (lead >= inner) {
    c.lead = c.inner = c.count = static_cast<int>(out);
  } else {
    c.lead = static_cast<int>(lead);
    c.inner = static_cast<int>(inner);
    c.trail = static_cast<int>(out - inner);
    c.count = c.lead + c.trail + 1;
  }
  return c;
}

// Words of a row per stage: short rows take one stage, longer ones two, both prefetched; the rest
// cycle through the ring.
inline int conv_chunk_words(int64_t row_words, bool small) {
  constexpr int kStep = 8, kShort = 80, kLong = 160, kChunk = 64;
  const auto pieces = [&](int64_t count) {
    return static_cast<int>((row_words + count * kStep - 1) / (count * kStep)) * kStep;
  };
  if (!small) return std::min(pieces(1), kChunk / 2);
  return row_words <= kShort ? pieces(1) : row_words <= kLong ? pieces(2) : kChunk;
}

// Bytes of the tables after the ring; see ConvTables.
template <class Tile>
constexpr int conv_row_bytes() {
  return Tile::kPixels * 32 + Tile::kChannels * 8;
}

// Fills in the plan and returns the bytes of shared memory, or 0 if the shape does not fit.
template <class Tile>
size_t plan_conv_mma(ConvMmaPlan& plan, const ConvAddArgs& args, int vector, bool prefetches) {
  constexpr int64_t kMostCopies = 1 << 12, kMostSums = 1 << 15;
  const ConvArgs& c = args.conv;
  const auto number = [](int64_t n) { return static_cast<int>(n); };
  const int64_t row_words = c.taps() * words_for(c.channels / c.groups);
  if (row_words / vector > kMostCopies) return 0;
  plan.words = number(words_for(c.channels / c.groups));
  plan.pixel_words = number(words_for(c.channels));
  plan.out_words = number(words_for(c.out_channels));
  plan.row_words = number(row_words);
  plan.chunk_words = conv_chunk_words(row_words, Tile::kPixels + Tile::kChannels <= 128);
  plan.chunks = (plan.row_words + plan.chunk_words - 1) / plan.chunk_words;
  plan.group_size = number(c.channels / c.groups);
  plan.group_channels = number(c.out_channels / c.groups);
  plan.group_tiles = (plan.group_channels + Tile::kChannels - 1) / Tile::kChannels;
  plan.pixels = number(c.pixels());
  plan.height = number(c.height);
  plan.width = number(c.width);
  plan.out_height = number(c.out_height);
  plan.out_width = number(c.out_width);
  plan.kernel_height = number(c.kernel_height);
  plan.kernel_width = number(c.kernel_width);
  plan.stride_height = number(c.stride_height);
  plan.stride_width = number(c.stride_width);
  plan.padding_top = number(c.padding_top);
  plan.padding_left = number(c.padding_left);
  plan.dilation_height = number(c.dilation_height);
  plan.dilation_width = number(c.dilation_width);
  plan.row_copies = plan.row_words / vector;
  plan.copies_room = (plan.row_copies + 1) / 2 * 2;
  plan.rows = conv_classes(c.out_height, c.stride_height, c.padding_top, c.dilation_height,
                           c.kernel_height, c.height);
  plan.columns = conv_classes(c.out_width, c.stride_width, c.padding_left, c.dilation_width,
                              c.kernel_width, c.width);
  const int64_t tap_sums = (c.kernel_height + 1) * (c.kernel_width + 1) * Tile::kChannels;
  // The class sums later overwrite the staged rows of `prepared`.
  const int64_t class_sums =
      Tile::kChannels *
      std::max(static_cast<int64_t>(plan.rows.count) * plan.columns.count, c.taps() + 2);
  if (tap_sums + class_sums > kMostSums) return 0;
  plan.tap_sums = number(tap_sums);
  plan.class_sums = number(class_sums);
  plan.prefetches = prefetches;
  plan.vectors = c.out_channels % 8 == 0 && plan.group_channels % 8 == 0 &&
                 is_aligned(c.out_int, 16) && is_aligned(c.out_float, 16) &&
                 is_aligned(args.sums, 16);
  plan.addend_vectors =
      args.addend_channels % 8 == 0 && plan.group_channels % 8 == 0 && is_aligned(args.addend, 16);
  const int stages = std::min(kConvDepth, plan.chunks);
  const int ring = stages * (Tile::kPixels + Tile::kChannels) * (plan.chunk_words + 4);
  plan.table_at = std::max(ring, Tile::kExchanged);
  return static_cast<size_t>(plan.table_at) * sizeof(int32_t) + conv_row_bytes<Tile>() +
         static_cast<size_t>(plan.copies_room) * 8 +
         static_cast<size_t>(tap_sums + class_sums) * sizeof(int32_t);
}

constexpr int kWalkStages = 3;  // pixel tiles that a persistent block keeps in shared memory
constexpr int kWalkRows = kWalkStages + 1;  // row tables, built one tile earlier

// Bytes of the persistent kernel's tables, in addition to plan_conv_walk().
template <class Tile>
constexpr int walk_table_bytes() {
  return kWalkRows * Tile::kPixels * 32 + Tile::kChannels * 8;
}

// Fills in the persistent kernel's plan and returns its bytes of shared memory, or 0 if rows are
// too long.
template <class Tile>
size_t plan_conv_walk(ConvMmaPlan& plan, const ConvAddArgs& args, int vector, bool prefetches) {
  constexpr int kMostWords = 80;
  if (plan_conv_mma<Tile>(plan, args, vector, prefetches) == 0) return 0;
  if (plan.row_words > kMostWords || plan.row_copies > Tile::kThreads) return 0;
  plan.chunk_words = (plan.row_words + 7) / 8 * 8;
  const int pitch = plan.chunk_words + 4;
  return static_cast<size_t>((kWalkStages * Tile::kPixels + Tile::kChannels) * pitch +
                             plan.tap_sums + plan.class_sums) *
         sizeof(int32_t);
}

}  // namespace bitgnn::cuda::conv
