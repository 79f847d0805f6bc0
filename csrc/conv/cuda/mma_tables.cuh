// Tables that a tile of a binary convolution builds before its pixels arrive: source addresses,
// taps inside the image, and the per-channel terms.
#pragma once

#include "conv/cuda/mma_plan.h"
#include "conv/cuda/outputs.cuh"
#include "core/cuda/mma_b1.cuh"

namespace bitgnn::cuda::conv {

template <int kVector>
__device__ __forceinline__ void copy_words_async(uint32_t to, const int32_t* from, bool exists) {
  const int bytes = exists ? kVector * 4 : 0;
  if constexpr (kVector == 4) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;\n" ::"r"(to), "l"(from), "r"(bytes),
                 "n"(kVector * 4)
                 : "memory");
  }
}

// Source of one copy of the gathered row.
struct ConvCopy {
  int32_t offset;  // from the group's word at the first tap, in words
  int16_t y, x;    // relative to the first tap
};

// Source of a row of the tile; pixels that do not exist are placed outside every image.
struct alignas(16) ConvRow {
  int64_t base;  // first word of the first tap, possibly outside
  int32_t y, x;  // of the first tap
};

struct alignas(16) ConvRowTerms {
  int64_t addend;         // offset of the pixel's addend
  int32_t size;           // channels times taps inside
  int32_t class_channel;  // class times channels per tile
};

template <class Tile>
struct alignas(16) ConvChannelTables {
  float threshold[Tile::kChannels];  // for sums with an addend
  int32_t limit[Tile::kChannels];    // for bits
};

template <class Tile>
struct alignas(16) ConvTables {
  ConvRow rows[Tile::kPixels];
  ConvRowTerms terms[Tile::kPixels];
  ConvChannelTables<Tile> channels;
};

__device__ __forceinline__ int conv_class(const ConvClasses& c, int at) {
  if (at < c.lead) return at;
  return at < c.inner ? c.lead : at - c.inner + c.lead + 1;
}

// A representative output position of a class.
__device__ __forceinline__ int class_member(const ConvClasses& c, int at) {
  return at <= c.lead ? at : c.inner + at - c.lead - 1;
}

struct TapRange {
  int begin, end;
};

// Taps along an axis whose positions origin + tap * dilation lie in [0, size).
__device__ __forceinline__ TapRange taps_inside(int origin, int dilation, int size, int taps) {
  const int begin = origin >= 0 ? 0 : min(taps, (dilation - 1 - origin) / dilation);
  const int end = size > origin ? min(taps, (size - origin + dilation - 1) / dilation) : 0;
  return {begin, max(begin, end)};
}

__device__ __forceinline__ TapRange rows_inside(const ConvMmaPlan& p, int y) {
  return taps_inside(y * p.stride_height - p.padding_top, p.dilation_height, p.height,
                     p.kernel_height);
}

__device__ __forceinline__ TapRange columns_inside(const ConvMmaPlan& p, int x) {
  return taps_inside(x * p.stride_width - p.padding_left, p.dilation_width, p.width,
                     p.kernel_width);
}

template <class Tile, ConvResult kOutput>
__device__ __forceinline__ void make_row(ConvRow& to, ConvRowTerms& to_terms, const ConvAddArgs& a,
                                         const ConvMmaPlan& plan, int row, int first) {
  ConvRow from{0, INT32_MIN / 2, 0};
  ConvRowTerms terms{};
  const int64_t pixel = static_cast<int64_t>(first) + row;
  if (pixel < plan.pixels) {
    const auto at = static_cast<uint32_t>(pixel);
    const uint32_t line = at / static_cast<uint32_t>(plan.out_width);
    const auto x = static_cast<int>(at - line * static_cast<uint32_t>(plan.out_width));
    const uint32_t image = line / static_cast<uint32_t>(plan.out_height);
    const auto y = static_cast<int>(line - image * static_cast<uint32_t>(plan.out_height));
    from.y = y * plan.stride_height - plan.padding_top;
    from.x = x * plan.stride_width - plan.padding_left;
    const int64_t image_rows = static_cast<int64_t>(image) * plan.height;
    from.base = ((image_rows + from.y) * plan.width + from.x) * plan.pixel_words;
    const TapRange i = rows_inside(plan, y), j = columns_inside(plan, x);
    terms.size = (i.end - i.begin) * (j.end - j.begin) * plan.group_size;
    terms.class_channel =
        (conv_class(plan.rows, y) * plan.columns.count + conv_class(plan.columns, x)) *
        Tile::kChannels;
    if constexpr (kOutput == ConvResult::kSums) terms.addend = addend_offset(a, image, y, x);
  }
  to = from;
  to_terms = terms;
}

template <int kVector>
__device__ __forceinline__ ConvCopy make_copy(const ConvMmaPlan& plan, int at) {
  const int tap = at * kVector / plan.words, word = at * kVector - tap * plan.words;
  const int i = tap / plan.kernel_width, j = tap - i * plan.kernel_width;
  const int y = i * plan.dilation_height, x = j * plan.dilation_width;
  return {(y * plan.width + x) * plan.pixel_words + word, static_cast<int16_t>(y),
          static_cast<int16_t>(x)};
}

// Limit of a channel that does not exist; no product reaches it.
constexpr int32_t kNoLimit = INT32_MAX;

// Fetches the tile's rows of `prepared`, which are contiguous.
template <class Tile>
__device__ __forceinline__ void stage_prepared(int32_t* staged, const ConvArgs& c,
                                               const ConvMmaPlan& plan, int first, int count) {
  const int row = plan.kernel_height * plan.kernel_width + kPreparedExtra;
  const int32_t* from = c.prepared + static_cast<int64_t>(first) * row;
  for (int at = static_cast<int>(threadIdx.x); at < count * row; at += Tile::kThreads)
    copy_words_async<1>(shared_address(staged + at), from + at, true);
}

// sums[(i * (kernel_width + 1) + j) * kChannels + channel]: popcount of the taps above i and left
// of j, a 2D prefix sum.
template <class Tile, ConvResult kOutput>
__device__ __forceinline__ void make_channel(int32_t* sums, ConvChannelTables<Tile>& tables,
                                             const int32_t* staged, const ConvArgs& c,
                                             const ConvMmaPlan& plan, int first, int count,
                                             int at) {
  const int channel = min(at, count - 1);
  const int32_t* from =
      staged + channel * (plan.kernel_height * plan.kernel_width + kPreparedExtra);
  int32_t* to = sums + at;
  const int line = (plan.kernel_width + 1) * Tile::kChannels;
  for (int j = 0; j <= plan.kernel_width; ++j) to[j * Tile::kChannels] = 0;
  for (int i = 0; i < plan.kernel_height; ++i) {
    to += line;
    int32_t row = 0;
    to[0] = 0;
    for (int j = 1; j <= plan.kernel_width; ++j) {
      row += *from++;
      to[j * Tile::kChannels] = to[j * Tile::kChannels - line] + row;
    }
  }
  if constexpr (kOutput == ConvResult::kBits) tables.limit[at] = at < count ? from[0] : kNoLimit;
  if constexpr (kOutput == ConvResult::kSums) {
    const bool compares = c.out_bits != nullptr && at < count;
    // No total reaches this.
    constexpr float kNever = __builtin_huge_valf();
    tables.threshold[at] = !compares                ? kNever
                           : c.threshold != nullptr ? c.threshold[first + channel]
                                                    : 0.0f;
  }
}

// Mask of the channels, out of 32 from `first`, whose bits are inverted.
template <ConvResult kOutput>
__device__ __forceinline__ uint32_t turned_word(const ConvArgs& c, const ConvMmaPlan& plan,
                                                int first, int count, int lane) {
  bool turned = false;
  if (lane < count && c.out_bits != nullptr) {
    const int taps = plan.kernel_height * plan.kernel_width;
    if constexpr (kOutput == ConvResult::kBits) {
      // A plain load: a read-only load could be moved above the wait for the preparing kernel.
      turned =
          c.prepared[static_cast<int64_t>(first + lane + 1) * (taps + kPreparedExtra) - 1] != 0;
    } else {
      turned = c.flip != nullptr && c.flip[first + lane];
    }
  }
  return __ballot_sync(kFullWarp, turned);
}

// sums[class * kChannels + channel]: twice the popcount of the weights at the taps inside; for
// bits, plus the limit.
template <class Tile, ConvResult kOutput>
__device__ __forceinline__ void make_classes(int32_t* class_sums, const int32_t* tap_sums,
                                             const ConvChannelTables<Tile>& tables,
                                             const ConvMmaPlan& plan) {
  const int entries = plan.rows.count * plan.columns.count * Tile::kChannels;
  for (int at = static_cast<int>(threadIdx.x); at < entries; at += Tile::kThreads) {
    const int which = at / Tile::kChannels, channel = at - which * Tile::kChannels;
    const int row = which / plan.columns.count, column = which - row * plan.columns.count;
    const TapRange i = rows_inside(plan, class_member(plan.rows, row));
    const TapRange j = columns_inside(plan, class_member(plan.columns, column));
    const int line = (plan.kernel_width + 1) * Tile::kChannels;
    const int32_t* from = tap_sums + channel;
    const int32_t inside = from[i.end * line + j.end * Tile::kChannels] -
                           from[i.begin * line + j.end * Tile::kChannels] -
                           from[i.end * line + j.begin * Tile::kChannels] +
                           from[i.begin * line + j.begin * Tile::kChannels];
    int32_t sum = 2 * inside;
    if constexpr (kOutput == ConvResult::kBits) {
      const int32_t limit = tables.limit[channel];
      sum = limit == kNoLimit ? kNoLimit : sum + limit;
    }
    class_sums[at] = sum;
  }
}

}  // namespace bitgnn::cuda::conv
