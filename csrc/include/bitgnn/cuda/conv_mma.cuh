// Binary convolution as an implicit product with mma.sync b1 tensor cores: a block computes a tile
// of output pixels by channels, gathers the words under the kernel into shared memory by
// asynchronous copies, taps outside the image as zeros, and may split the sum over its warps.
//
// With p = popc(a & b) over the gathered words, |a| their set bits, and |b| the set bits of the
// weights at taps inside the image, dot = size * taps inside - 2 |a| - 2 |b| + 4 p. |b| comes from
// sums of the counts of the taps over rectangles that begin at the first tap.
//
// In a chain of layers the time of a launch is mostly latency: weights, counts and limits are on
// their way before the kernel in front has finished.
#pragma once

#include <algorithm>

#include "bitgnn/cuda/conv_outputs.cuh"
#include "bitgnn/cuda/dependent_launch.cuh"
#include "bitgnn/cuda/mma_b1.cuh"

namespace bitgnn::cuda {

// Warps along pixels, channels and the sum, and the fragments of each.
template <int kPixelWarpsOf, int kChannelWarpsOf, int kSumWarpsOf, int kPixelFragmentsOf,
          int kChannelFragmentsOf, int kBlocksOf>
struct ConvTile {
  static constexpr int kPixelWarps = kPixelWarpsOf, kChannelWarps = kChannelWarpsOf;
  static constexpr int kSumWarps = kSumWarpsOf;
  static constexpr int kPixelFragments = kPixelFragmentsOf;
  static constexpr int kChannelFragments = kChannelFragmentsOf;
  static constexpr int kBlocks = kBlocksOf;  // on a multiprocessor
  static constexpr int kPixels = kPixelWarps * kPixelFragments * kMmaRows;
  static constexpr int kChannels = kChannelWarps * kChannelFragments * kMmaColumns;
  static constexpr int kWarps = kPixelWarps * kChannelWarps * kSumWarps;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kRowsOfWarp = kPixels / kWarps;  // whose outputs a warp writes
  static constexpr int kPartPitch = kChannels + 8;      // of a row of sums, in words
  static_assert(kChannelFragments % 2 == 0 && kChannels % 32 == 0 && kPixels % kWarps == 0);
  static_assert(kRowsOfWarp <= kWarp, "a lane keeps a row's word");
};

constexpr int kConvDepth = 3;  // stages of the ring, of which two are filled ahead

// How the launcher cut the convolution up; sizes in words.
struct ConvMmaPlan {
  int words;           // of a group at a pixel
  int pixel_words;     // of x
  int out_words;       // of a pixel of bits
  int row_words;       // under the kernel: of a row of weights
  int chunk_words;     // of a row in a stage
  int chunks;          // of a row
  int group_channels;  // outputs of a group
  int group_tiles;     // tiles of a group
  int copies;          // of a row, with room to keep what follows aligned
  int tap_sums;
  int table_words;  // of the ring or of the sums behind it, whichever is larger
  bool prefetches;  // weights were there before the kernel in front
  bool borders;     // taps may lie outside the image
  bool adds;
  int addend_pitch;  // bytes of a row of staged addends; 0: they are read when they are needed
};

// Where a copy of the gathered row comes from.
struct ConvCopy {
  int32_t offset;  // from the first tap's word of the group, in words
  int16_t y, x;    // from the first tap
};

// Where a row of the tile comes from; pixels that do not exist lie outside every image.
struct ConvRow {
  int64_t base;  // first tap's first word, possibly outside
  int32_t y, x;  // of the first tap
};

// What a row adds to its products, and the taps inside the image.
struct ConvRowTerms {
  int64_t addend;
  int32_t size;  // of the row inside the image
  uint8_t top, bottom, left, right;
};

// Fixed parts of shared memory behind the ring.
template <class Tile>
struct alignas(16) ConvTables {
  ConvRow rows[Tile::kPixels];
  ConvRowTerms terms[Tile::kPixels];
  int32_t counts[Tile::kPixels];  // |a|
};

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

// Taps [begin, end) along an axis whose places origin + tap * dilation are in [0, size).
__device__ __forceinline__ void taps_inside(int origin, int dilation, int size, int taps,
                                            uint8_t* begin, uint8_t* end) {
  const int first = origin >= 0 ? 0 : min(taps, (dilation - 1 - origin) / dilation);
  const int last = size > origin ? min(taps, (size - origin + dilation - 1) / dilation) : 0;
  *begin = static_cast<uint8_t>(first);
  *end = static_cast<uint8_t>(max(first, last));
}

template <class Tile>
__device__ __forceinline__ void make_row(ConvTables<Tile>& tables, const ConvAddArgs& a,
                                         const ConvMmaPlan& plan, int row, int64_t first) {
  const ConvArgs& c = a.conv;
  ConvRow from{0, INT32_MIN / 2, 0};
  ConvRowTerms terms{};
  const int64_t pixel = first + row;
  if (pixel < c.pixels()) {
    const auto at = static_cast<uint32_t>(pixel);
    const uint32_t line = at / static_cast<uint32_t>(c.out_width);
    const auto x = static_cast<int>(at - line * static_cast<uint32_t>(c.out_width));
    const uint32_t image = line / static_cast<uint32_t>(c.out_height);
    const auto y = static_cast<int>(line - image * static_cast<uint32_t>(c.out_height));
    from.y = y * static_cast<int>(c.stride_height) - static_cast<int>(c.padding_top);
    from.x = x * static_cast<int>(c.stride_width) - static_cast<int>(c.padding_left);
    from.base = ((image * c.height + from.y) * c.width + from.x) * plan.pixel_words;
    taps_inside(from.y, static_cast<int>(c.dilation_height), static_cast<int>(c.height),
                static_cast<int>(c.kernel_height), &terms.top, &terms.bottom);
    taps_inside(from.x, static_cast<int>(c.dilation_width), static_cast<int>(c.width),
                static_cast<int>(c.kernel_width), &terms.left, &terms.right);
    terms.size = (terms.bottom - terms.top) * (terms.right - terms.left) *
                 static_cast<int>(c.channels / c.groups);
    if (a.addend != nullptr) terms.addend = addend_offset(a, image, y, x);
  }
  tables.rows[row] = from;
  tables.terms[row] = terms;
}

// sums[(i * (kernel_width + 1) + j) * kChannels + channel]: set bits of the taps above i and left
// of j; without borders the set bits of all taps alone, as the only entry.
template <class Tile>
__device__ __forceinline__ void sum_taps(int32_t* sums, const ConvArgs& c, const ConvMmaPlan& plan,
                                         int first, int count) {
  const int kernel_height = static_cast<int>(c.kernel_height);
  const int kernel_width = static_cast<int>(c.kernel_width);
  const int taps = kernel_height * kernel_width;
  for (int at = static_cast<int>(threadIdx.x); at < Tile::kChannels; at += Tile::kThreads) {
    const int32_t* from =
        c.prepared + static_cast<int64_t>(first + min(at, count - 1)) * (taps + kPreparedExtra);
    int32_t* to = sums + at;
    if (!plan.borders) {
      int32_t all = 0;
      for (int t = 0; t < taps; ++t) all += from[t];
      *to = all;
      continue;
    }
    const int line = (kernel_width + 1) * Tile::kChannels;
    for (int j = 0; j <= kernel_width; ++j) to[j * Tile::kChannels] = 0;
    for (int i = 0; i < kernel_height; ++i) {
      to += line;
      int32_t row = 0;
      to[0] = 0;
      for (int j = 0; j < kernel_width; ++j) {
        row += from[i * kernel_width + j];
        to[(j + 1) * Tile::kChannels] = to[(j + 1) * Tile::kChannels - line] + row;
      }
    }
  }
}

// One stage of a side of the product: `rows` rows by a chunk of words, copied kVector at a time;
// copy(row, vector) gives where from and whether there is something.
template <int kThreads, int kVector, class Copy>
__device__ __forceinline__ void copy_stage(uint32_t* to, int rows, int chunk_words, int pitch,
                                           const Copy& copy) {
  const int vectors = chunk_words / kVector;
  int row = static_cast<int>(threadIdx.x) / vectors;
  int vector = static_cast<int>(threadIdx.x) - row * vectors;
  const int row_step = kThreads / vectors, vector_step = kThreads - row_step * vectors;
  while (row < rows) {
    const auto [from, exists] = copy(row, vector);
    copy_words_async<kVector>(shared_address(to + row * pitch + vector * kVector), from, exists);
    row += row_step;
    vector += vector_step;
    if (vector >= vectors) {
      vector -= vectors;
      ++row;
    }
  }
}

struct CopySource {
  const int32_t* from;
  bool exists;
};

// Set bits of the weights at the taps inside.
template <class Tile>
__device__ __forceinline__ int32_t weights_inside(const int32_t* sums, const ConvRowTerms& row,
                                                  int line, int channel) {
  const int32_t* to = sums + channel;
  return to[row.bottom * line + row.right * Tile::kChannels] -
         to[row.top * line + row.right * Tile::kChannels] -
         to[row.bottom * line + row.left * Tile::kChannels] +
         to[row.top * line + row.left * Tile::kChannels];
}

// Fetches the tile's addends ahead, as they are; channels that the addend lacks become zeros.
template <class Tile>
__device__ __forceinline__ void copy_addends(uint32_t to, const ConvAddArgs& a,
                                             const ConvTables<Tile>& tables, int pitch,
                                             int first_channel) {
  const int shift = a.addend_wide ? 2 : 1;  // of a channel's bytes
  const int copies = (Tile::kChannels << shift) / 16;
  const auto* const from = static_cast<const char*>(a.addend);
  for (int at = static_cast<int>(threadIdx.x); at < Tile::kPixels * copies; at += Tile::kThreads) {
    const int row = at / copies, copy = at - row * copies;
    const int64_t channel = first_channel + (copy * 16 >> shift);
    const int64_t left = (a.addend_channels - channel) << shift;
    const int bytes = static_cast<int>(max(int64_t{0}, min(int64_t{16}, left)));
    const int64_t offset = (tables.terms[row].addend + channel) << shift;
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to + row * pitch + copy * 16),
        "l"(bytes > 0 ? from + offset : from), "r"(bytes)
        : "memory");
  }
}

template <class Tile, int kVector>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    conv_mma_kernel(const __grid_constant__ ConvAddArgs a,
                    const __grid_constant__ ConvMmaPlan plan) {
  extern __shared__ __align__(16) uint32_t ring[];
  auto& tables = *reinterpret_cast<ConvTables<Tile>*>(ring + plan.table_words);
  auto* const copies = reinterpret_cast<ConvCopy*>(&tables + 1);
  const int row_vectors = plan.row_words / kVector;
  auto* const sums = reinterpret_cast<int32_t*>(copies + plan.copies);
  char* const addends = reinterpret_cast<char*>(sums + plan.tap_sums);
  const ConvArgs& c = a.conv;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int sum_warp = warp % Tile::kSumWarps;
  const int channel_warp = warp / Tile::kSumWarps % Tile::kChannelWarps;
  const int pixel_warp = warp / (Tile::kSumWarps * Tile::kChannelWarps);
  const int warp_row = pixel_warp * Tile::kPixelFragments * kMmaRows;
  const int warp_column = channel_warp * Tile::kChannelFragments * kMmaColumns;

  const int64_t first_pixel = static_cast<int64_t>(blockIdx.x) * Tile::kPixels;
  const int group = static_cast<int>(blockIdx.y) / plan.group_tiles;
  const int in_group = (static_cast<int>(blockIdx.y) - group * plan.group_tiles) * Tile::kChannels;
  const int first_channel = group * plan.group_channels + in_group;
  const int channels = min(Tile::kChannels, plan.group_channels - in_group);

  const int pitch = plan.chunk_words + 4;
  const int stage_words = (Tile::kPixels + Tile::kChannels) * pitch;
  const int32_t* const w = c.w + static_cast<int64_t>(first_channel) * plan.row_words;
  const int32_t* const x = c.x + group * plan.words;
  const auto load_weights = [&](int chunk, int stage) {
    if (chunk >= plan.chunks) return;
    copy_stage<Tile::kThreads, kVector>(
        ring + stage * stage_words + Tile::kPixels * pitch, Tile::kChannels, plan.chunk_words,
        pitch, [&](int row, int vector) {
          const int word = chunk * plan.chunk_words + vector * kVector;
          const bool exists = row < channels && word < plan.row_words;
          return CopySource{exists ? w + static_cast<int64_t>(row) * plan.row_words + word : c.w,
                            exists};
        });
  };
  const auto load_pixels = [&](int chunk, int stage) {
    if (chunk >= plan.chunks) return;
    const int first = chunk * plan.chunk_words / kVector;
    copy_stage<Tile::kThreads, kVector>(
        ring + stage * stage_words, Tile::kPixels, plan.chunk_words, pitch,
        [&](int row, int vector) {
          const int at = first + vector;
          if (at >= row_vectors) return CopySource{c.x, false};
          const ConvCopy copy = copies[at];
          const ConvRow from = tables.rows[row];
          const bool exists =
              static_cast<unsigned>(from.y + copy.y) < static_cast<unsigned>(c.height) &&
              static_cast<unsigned>(from.x + copy.x) < static_cast<unsigned>(c.width);
          return CopySource{exists ? x + from.base + copy.offset : c.x, exists};
        });
  };

  let_next_start();
  if (!plan.prefetches) wait_for_previous();
  constexpr int kAhead = kConvDepth - 1;
#pragma unroll
  for (int s = 0; s < kAhead; ++s) load_weights(s, s);
  for (int at = static_cast<int>(threadIdx.x); at < Tile::kPixels; at += Tile::kThreads)
    make_row(tables, a, plan, at, first_pixel);
  for (int at = static_cast<int>(threadIdx.x); at < row_vectors; at += Tile::kThreads) {
    const int tap = at * kVector / plan.words, word = at * kVector - tap * plan.words;
    const int i = tap / static_cast<int>(c.kernel_width);
    const int y = i * static_cast<int>(c.dilation_height);
    const int j = tap - i * static_cast<int>(c.kernel_width);
    const int right = j * static_cast<int>(c.dilation_width);
    copies[at] = {(y * static_cast<int>(c.width) + right) * plan.pixel_words + word,
                  static_cast<int16_t>(y), static_cast<int16_t>(right)};
  }
  sum_taps<Tile>(sums, c, plan, first_channel, channels);
  __syncthreads();
  if (plan.prefetches) wait_for_previous();
#pragma unroll
  for (int s = 0; s < kAhead; ++s) {
    load_pixels(s, s);
    if (s + 1 == kAhead && plan.addend_pitch != 0)
      copy_addends(shared_address(addends), a, tables, plan.addend_pitch, first_channel);
    commit_copies();
  }

  int32_t sum[Tile::kPixelFragments][Tile::kChannelFragments][4] = {};
  int32_t count[Tile::kPixelFragments][4] = {};
  const uint32_t ones[2] = {~0u, ~0u};
  int stage = 0;
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    wait_copies<kAhead - 1>();
    __syncthreads();
    const int next = stage == 0 ? kAhead : stage - 1;
    load_weights(chunk + kAhead, next);
    load_pixels(chunk + kAhead, next);
    commit_copies();
    const uint32_t* const from = ring + stage * stage_words;
    const uint32_t* const pixels = from + warp_row * pitch;
    const uint32_t* const weights = from + (Tile::kPixels + warp_column) * pitch;
    const int left = min(plan.chunk_words, plan.row_words - chunk * plan.chunk_words);
    const int steps = (left + kMmaWords - 1) / kMmaWords;
#pragma unroll 1
    for (int step = sum_warp; step < steps; step += Tile::kSumWarps) {
      uint32_t rows[Tile::kPixelFragments][4];
#pragma unroll
      for (int i = 0; i < Tile::kPixelFragments; ++i)
        load_row_fragment(rows[i], pixels + i * kMmaRows * pitch + step * kMmaWords, pitch, lane);
#pragma unroll
      for (int j = 0; j < Tile::kChannelFragments; j += 2) {
        uint32_t columns[2][2];
        load_column_fragments(columns[0], columns[1],
                              weights + j * kMmaColumns * pitch + step * kMmaWords, pitch, lane);
#pragma unroll
        for (int i = 0; i < Tile::kPixelFragments; ++i) {
          mma_and_popc(sum[i][j], rows[i], columns[0]);
          mma_and_popc(sum[i][j + 1], rows[i], columns[1]);
        }
      }
      if (channel_warp == 0) {
#pragma unroll
        for (int i = 0; i < Tile::kPixelFragments; ++i) mma_and_popc(count[i], rows[i], ones);
      }
    }
    stage = stage + 1 == kConvDepth ? 0 : stage + 1;
  }

  // Sums of all warps, over the ring.
  wait_copies<0>();
  __syncthreads();
  constexpr int kPartWords = Tile::kPixels * Tile::kPartPitch;
  auto* const parts = reinterpret_cast<int32_t*>(ring);
  int32_t* const part_counts = parts + Tile::kSumWarps * kPartWords;
  const int quad = fragment_quad(lane), in_fragment = fragment_group(lane);
#pragma unroll
  for (int i = 0; i < Tile::kPixelFragments; ++i) {
    const int row = warp_row + i * kMmaRows + in_fragment;
    int32_t* const to =
        parts + sum_warp * kPartWords + row * Tile::kPartPitch + warp_column + quad * 2;
#pragma unroll
    for (int j = 0; j < Tile::kChannelFragments; ++j) {
      *reinterpret_cast<int2*>(to + j * kMmaColumns) = make_int2(sum[i][j][0], sum[i][j][1]);
      *reinterpret_cast<int2*>(to + j * kMmaColumns + 8 * Tile::kPartPitch) =
          make_int2(sum[i][j][2], sum[i][j][3]);
    }
    if (channel_warp == 0 && quad == 0) {
      part_counts[sum_warp * Tile::kPixels + row] = count[i][0];
      part_counts[sum_warp * Tile::kPixels + row + 8] = count[i][2];
    }
  }
  __syncthreads();

  constexpr int kTileWords = Tile::kChannels / 32;
  const int own_row = warp * Tile::kRowsOfWarp;
  const int line = (static_cast<int>(c.kernel_width) + 1) * Tile::kChannels;
  const int64_t pixels_left = c.pixels() - first_pixel;
  const int rows = static_cast<int>(min(int64_t{Tile::kRowsOfWarp}, pixels_left - own_row));
#pragma unroll 1
  for (int t = 0; t < kTileWords; ++t) {
    if (t * 32 >= channels) break;
    const int column = t * 32 + lane;
    const ConvChannel own =
        load_conv_channel(c, plan.adds, first_channel + column, column < channels);
    uint32_t kept = 0;
#pragma unroll 2
    for (int r = 0; r < rows; ++r) {
      const int row = own_row + r;
      const ConvRowTerms terms = tables.terms[row];
      int32_t p = 0, ones_of_row = 0;
#pragma unroll
      for (int s = 0; s < Tile::kSumWarps; ++s) {
        p += parts[s * kPartWords + row * Tile::kPartPitch + column];
        ones_of_row += part_counts[s * Tile::kPixels + row];
      }
      const int32_t of_weights =
          plan.borders ? weights_inside<Tile>(sums, terms, line, column) : sums[column];
      const int32_t dot = terms.size - 2 * (ones_of_row + of_weights) + 4 * p;
      int32_t addend = 0;
      if (plan.addend_pitch != 0) {
        const char* const staged = addends + row * plan.addend_pitch;
        addend = a.addend_wide ? reinterpret_cast<const int32_t*>(staged)[column]
                               : reinterpret_cast<const int16_t*>(staged)[column];
      } else if (plan.adds) {
        addend = load_addend(a, terms.addend, own.channel);
      }
      const uint32_t bits = finish_conv(a, plan.adds, own, first_pixel + row, addend, dot);
      if (lane == r) kept = bits;
    }
    if (c.out_bits != nullptr && lane < rows)
      c.out_bits[(first_pixel + own_row + lane) * plan.out_words + first_channel / 32 + t] =
          static_cast<int32_t>(kept);
  }
}

// Bytes of shared memory; 0 where the shape does not fit this kernel.
template <class Tile, int kVector>
size_t plan_conv_mma(ConvMmaPlan& plan, const ConvAddArgs& args, bool adds, bool prefetches) {
  constexpr int64_t kMostCopies = 1 << 12;
  constexpr int64_t kMostTapSums = 1 << 15;  // bytes x 4
  const ConvArgs& c = args.conv;
  const int64_t group_channels = c.out_channels / c.groups;
  plan.words = static_cast<int>(words_for(c.channels / c.groups));
  plan.pixel_words = static_cast<int>(words_for(c.channels));
  plan.out_words = static_cast<int>(words_for(c.out_channels));
  const int64_t row_words = c.taps() * plan.words;
  if (row_words / kVector > kMostCopies) return 0;
  plan.row_words = static_cast<int>(row_words);
  // Short rows in one piece, longer ones in two, both filled ahead; others go round the ring.
  constexpr int kShort = 80, kLong = 160, kChunk = 64;
  const int whole = static_cast<int>(ceil_div(row_words, kMmaWords)) * kMmaWords;
  const int half = static_cast<int>(ceil_div(row_words, 2 * kMmaWords)) * kMmaWords;
  const bool small = Tile::kPixels + Tile::kChannels <= 128;
  plan.chunk_words = !small                ? std::min(whole, kChunk / 2)
                     : row_words <= kShort ? whole
                     : row_words <= kLong  ? half
                                           : kChunk;
  plan.chunks = static_cast<int>(ceil_div(row_words, plan.chunk_words));
  plan.group_channels = static_cast<int>(group_channels);
  plan.group_tiles = static_cast<int>(ceil_div(group_channels, Tile::kChannels));
  plan.prefetches = prefetches;
  plan.adds = adds;
  const int64_t bottom = (c.out_height - 1) * c.stride_height - c.padding_top +
                         (c.kernel_height - 1) * c.dilation_height;
  const int64_t right =
      (c.out_width - 1) * c.stride_width - c.padding_left + (c.kernel_width - 1) * c.dilation_width;
  plan.borders = c.padding_top > 0 || c.padding_left > 0 || bottom >= c.height || right >= c.width;
  const int64_t tap_sums = plan.borders
                               ? (c.kernel_height + 1) * (c.kernel_width + 1) * Tile::kChannels
                               : Tile::kChannels;
  if (tap_sums > kMostTapSums) return 0;
  // An even number of copies keeps what follows on 16 bytes.
  const int64_t copies = (row_words / kVector + 1) / 2 * 2;
  plan.copies = static_cast<int>(copies);
  plan.tap_sums = static_cast<int>(tap_sums);
  const int element = args.addend_wide ? 4 : 2;
  const bool staged = args.addend != nullptr && small && args.addend_channels * element % 16 == 0 &&
                      plan.group_channels * element % 16 == 0 &&
                      reinterpret_cast<uintptr_t>(args.addend) % 16 == 0;
  plan.addend_pitch = staged ? Tile::kChannels * element + 16 : 0;
  const int stages = std::min(kConvDepth, plan.chunks);
  const int ring = stages * (Tile::kPixels + Tile::kChannels) * (plan.chunk_words + 4);
  const int parts = Tile::kSumWarps * Tile::kPixels * (Tile::kPartPitch + 1);
  plan.table_words = (std::max(ring, parts) + 3) / 4 * 4;
  return plan.table_words * sizeof(int32_t) + sizeof(ConvTables<Tile>) +
         static_cast<size_t>(copies) * sizeof(ConvCopy) +
         static_cast<size_t>(tap_sums) * sizeof(int32_t) +
         static_cast<size_t>(plan.addend_pitch) * Tile::kPixels;
}

template <class Tile, int kVector>
cudaError_t launch_conv_mma(const ConvAddArgs& args, bool adds, bool prefetches,
                            const Context& context) {
  ConvMmaPlan plan{};
  const size_t bytes = plan_conv_mma<Tile, kVector>(plan, args, adds, prefetches);
  if (bytes == 0 || bytes > static_cast<size_t>(context.device.shared_bytes))
    return cudaErrorInvalidConfiguration;
  const auto kernel = conv_mma_kernel<Tile, kVector>;
  const cudaError_t status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, context.device.shared_bytes);
  if (status != cudaSuccess) return status;
  const dim3 grid(grid_size(ceil_div(args.conv.pixels(), Tile::kPixels)),
                  grid_size(plan.group_tiles * args.conv.groups));
  return launch_dependent(kernel, grid, Tile::kThreads, bytes, context, args, plan);
}

}  // namespace bitgnn::cuda
