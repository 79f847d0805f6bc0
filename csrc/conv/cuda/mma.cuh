// Binary convolution as an implicit GEMM on mma.sync b1 tensor cores. A block computes a tile of
// output pixels by channels, gathers the words under the kernel into shared memory with cp.async
// (taps outside the image as zeros), and may split the reduction over its warps.
//
// With p = popc(a & b) over the gathered words, |a| their popcount, and |b| the popcount of the
// weights at taps inside the image, dot = size * taps inside + 2 (2 p - |a|) - 2 |b|. The tensor
// cores also compute |a|, as a product with ones. |b| is looked up by the class of the pixel, i.e.
// by which taps are inside.
//
// In a chain of layers a launch is dominated by latency, so weights, counts and limits are
// prefetched before the previous kernel has finished.
#pragma once

#include "conv/cuda/finish.cuh"
#include "conv/cuda/mma_tables.cuh"
#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/mma_b1.cuh"

namespace bitgnn::cuda::conv {

struct CopySource {
  const int32_t* from;
  bool exists;
};

// Copies one stage of one operand: `rows` rows by a chunk of words, kVector words per copy;
// source(row, vector) gives the address and whether the data exists.
template <int kThreads, int kVector, class Source>
__device__ __forceinline__ void copy_stage(uint32_t* to, int rows, int chunk_words, int pitch,
                                           const Source& source) {
  const int vectors = chunk_words / kVector;
  int row = static_cast<int>(threadIdx.x) / vectors;
  int vector = static_cast<int>(threadIdx.x) - row * vectors;
  const int row_step = kThreads / vectors, vector_step = kThreads - row_step * vectors;
  while (row < rows) {
    const CopySource copy = source(row, vector);
    copy_words_async<kVector>(shared_address(to + row * pitch + vector * kVector), copy.from,
                              copy.exists);
    row += row_step;
    vector += vector_step;
    if (vector >= vectors) {
      vector -= vectors;
      ++row;
    }
  }
}

// Operands of one 256-bit step.
template <class Tile>
struct ConvFragments {
  uint32_t rows[Tile::kPixelFragments][4];
  uint32_t columns[Tile::kChannelFragments][2];

  __device__ __forceinline__ void load(const uint32_t* pixels, const uint32_t* weights, int pitch,
                                       int lane) {
#pragma unroll
    for (int i = 0; i < Tile::kPixelFragments; ++i)
      load_row_fragment(rows[i], pixels + i * kMmaRows * pitch, pitch, lane);
#pragma unroll
    for (int j = 0; j < Tile::kChannelFragments; j += 2)
      load_column_fragments(columns[j], columns[j + 1], weights + j * kMmaColumns * pitch, pitch,
                            lane);
  }
};

// Accumulators of a warp.
template <class Tile>
struct ConvSums {
  int32_t sum[Tile::kPixelFragments][Tile::kChannelFragments][4] = {};
  int32_t count[Tile::kPixelFragments][4] = {};  // |a|, the same in all columns

  __device__ __forceinline__ void add(const ConvFragments<Tile>& f) {
    const uint32_t ones[2] = {~0u, ~0u};
#pragma unroll
    for (int i = 0; i < Tile::kPixelFragments; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kChannelFragments; ++j)
        mma_and_popc(sum[i][j], f.rows[i], f.columns[j]);
      mma_and_popc(count[i], f.rows[i], ones);
    }
  }

  // 2 p - |a| for one half of a fragment's pixels.
  __device__ __forceinline__ int32_t part(int half, int j, int e) const {
    const int at = half % 2 * 2 + e;
    return 2 * sum[half / 2][j][at] - count[half / 2][half % 2 * 2];
  }
};

// Pools 2 x 2 windows, all of whose rows lie in the tile, and writes their words.
template <class Tile>
__device__ __forceinline__ void write_pooled(const int32_t* words, const ConvArgs& c,
                                             const ConvMmaPlan& plan, int first_pixel,
                                             int first_channel, int channels) {
  constexpr int kWords = Tile::kChannelWords;
  const int width = plan.out_width / 2;
  const int of_tile = Tile::kPixels / (2 * plan.out_width) * width;
  const int first = first_pixel / (2 * plan.out_width) * width, all = plan.pixels / 4;
  for (int at = static_cast<int>(threadIdx.x); at < of_tile * kWords; at += Tile::kThreads) {
    const int window = at / kWords, word = at - window * kWords;
    const int line = window / width, x = window - line * width;
    if (first + window >= all || word * 32 >= channels) continue;
    const int place = first_channel / 32 + word;
    const int32_t flip = plan.pool.flip != nullptr ? plan.pool.flip[place] : 0;
    const int32_t* const from = words + (line * 2 * plan.out_width + 2 * x) * kWords + word;
    const int32_t* const below = from + plan.out_width * kWords;
    c.out_bits[static_cast<int64_t>(first + window) * plan.out_words + place] =
        ((from[0] ^ flip) | (from[kWords] ^ flip) | (below[0] ^ flip) | (below[kWords] ^ flip)) ^
        flip;
  }
}

template <class Tile, int kVector, ConvResult kOutput>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    conv_mma_kernel(const __grid_constant__ ConvAddArgs a,
                    const __grid_constant__ ConvMmaPlan plan) {
  extern __shared__ __align__(16) uint32_t ring[];
  auto& tables = *reinterpret_cast<ConvTables<Tile>*>(ring + plan.table_at);
  auto* const copies = reinterpret_cast<ConvCopy*>(&tables + 1);
  auto* const tap_sums = reinterpret_cast<int32_t*>(copies + plan.copies_room);
  int32_t* const class_sums = tap_sums + plan.tap_sums;
  const ConvArgs& c = a.conv;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp, lane = thread % kWarp;
  const int sum_warp = warp % Tile::kSumWarps;
  const int channel_warp = warp / Tile::kSumWarps % Tile::kChannelWarps;
  const int pixel_warp = warp / (Tile::kSumWarps * Tile::kChannelWarps);

  const int first_pixel = static_cast<int>(blockIdx.x) * Tile::kPixels;
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
    const int first = chunk * plan.chunk_words;
    copy_stage<Tile::kThreads, kVector>(
        ring + stage * stage_words + Tile::kPixels * pitch, Tile::kChannels, plan.chunk_words,
        pitch, [&](int row, int vector) {
          const int word = first + vector * kVector;
          const int channel = channel_of_row(row);
          const bool exists = channel < channels && word < plan.row_words;
          return CopySource{exists ? w + channel * plan.row_words + word : c.w, exists};
        });
  };
  const auto load_pixels = [&](int chunk, int stage) {
    if (chunk >= plan.chunks) return;
    const int first = chunk * plan.chunk_words / kVector;
    copy_stage<Tile::kThreads, kVector>(
        ring + stage * stage_words, Tile::kPixels, plan.chunk_words, pitch,
        [&](int row, int vector) {
          const int at = first + vector;
          if (at >= plan.row_copies) return CopySource{c.x, false};
          const ConvCopy copy = copies[at];
          const ConvRow from = tables.rows[row];
          const bool exists =
              static_cast<unsigned>(from.y + copy.y) < static_cast<unsigned>(plan.height) &&
              static_cast<unsigned>(from.x + copy.x) < static_cast<unsigned>(plan.width);
          return CopySource{exists ? x + from.base + copy.offset : c.x, exists};
        });
  };

  let_next_start();
  if (!plan.prefetches) wait_for_previous();
  constexpr int kAhead = kConvDepth - 1;
  stage_prepared<Tile>(class_sums, c, plan, first_channel, channels);
  commit_copies();
#pragma unroll
  for (int s = 0; s < kAhead; ++s) load_weights(s, s);
  commit_copies();
  for (int at = Tile::kThreads - 1 - thread; at < Tile::kPixels; at += Tile::kThreads)
    make_row<Tile, kOutput>(tables.rows[at], tables.terms[at], a, plan, at, first_pixel);
  for (int at = Tile::kThreads - 1 - thread; at < plan.row_copies; at += Tile::kThreads)
    copies[at] = make_copy<kVector>(plan, at);
  ConvChannels<Tile> own;
  own.column =
      channel_warp * Tile::kChannelFragments * kMmaColumns + fragment_quad(lane) * kLaneChannels;
  own.first = first_channel;
  own.count = channels;
#pragma unroll
  for (int t = 0; t < ConvChannels<Tile>::kWords; ++t) {
    const int begin = channel_warp * Tile::kChannelFragments * kMmaColumns + t * 32;
    own.turned[t] = turned_word<kOutput>(c, plan, first_channel + begin, channels - begin, lane);
  }
  wait_copies<1>();
  __syncthreads();
  for (int at = thread; at < Tile::kChannels; at += Tile::kThreads)
    make_channel<Tile, kOutput>(tap_sums, tables.channels, class_sums, c, plan, first_channel,
                                channels, at);
  __syncthreads();
  make_classes<Tile, kOutput>(class_sums, tap_sums, tables.channels, plan);
  if (plan.prefetches) wait_for_previous();
#pragma unroll
  for (int s = 0; s < kAhead; ++s) {
    load_pixels(s, s);
    commit_copies();
  }

  ConvFinish<Tile, kOutput> finish;
  const int first_half = sum_warp * Tile::kOwnHalves;
#pragma unroll
  for (int h = 0; h < Tile::kOwnHalves; ++h)
    finish.row[h] =
        pixel_warp * Tile::kPixelFragments * kMmaRows + (first_half + h) * 8 + fragment_group(lane);
  finish.load_addends(a, plan, tables.terms, own);
  // The row table is no longer needed once the last chunk has been requested.
  if (kOutput == ConvResult::kBits && plan.pool.pools)
    finish.pooled = reinterpret_cast<int32_t*>(tables.rows);

  ConvSums<Tile> sums;
  int stage = 0;
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    wait_copies<kAhead - 1>();
    __syncthreads();
    const int next = stage == 0 ? kAhead : stage - 1;
    load_weights(chunk + kAhead, next);
    load_pixels(chunk + kAhead, next);
    commit_copies();
    const uint32_t* const pixels =
        ring + stage * stage_words + pixel_warp * Tile::kPixelFragments * kMmaRows * pitch;
    const uint32_t* const weights =
        ring + stage * stage_words +
        (Tile::kPixels + channel_warp * Tile::kChannelFragments * kMmaColumns) * pitch;
    const int left = min(plan.chunk_words, plan.row_words - chunk * plan.chunk_words);
    const int steps = (left + kMmaWords - 1) / kMmaWords;
#pragma unroll 3
    for (int step = sum_warp; step < steps; step += Tile::kSumWarps) {
      ConvFragments<Tile> fragments;
      fragments.load(pixels + step * kMmaWords, weights + step * kMmaWords, pitch, lane);
      sums.add(fragments);
    }
    stage = stage + 1 == kConvDepth ? 0 : stage + 1;
  }

  if constexpr (Tile::kSumWarps == 1) {
    finish.write_all(a, plan, tables.terms, tables.channels, class_sums, own, sums, first_pixel,
                     lane);
  } else {
    // Every warp publishes all halves and sums those it finishes.
    wait_copies<0>();
    __syncthreads();
    constexpr int kPieces = Tile::kChannelFragments / 2;  // of four numbers per lane
    auto* const exchange = reinterpret_cast<int4*>(ring) +
                           (pixel_warp * Tile::kChannelWarps + channel_warp) * Tile::kHalves *
                               Tile::kSumWarps * kPieces * kWarp +
                           lane;
#pragma unroll
    for (int h = 0; h < Tile::kHalves; ++h) {
#pragma unroll
      for (int v = 0; v < kPieces; ++v)
        exchange[((h * Tile::kSumWarps + sum_warp) * kPieces + v) * kWarp] =
            make_int4(sums.part(h, 2 * v, 0), sums.part(h, 2 * v, 1), sums.part(h, 2 * v + 1, 0),
                      sums.part(h, 2 * v + 1, 1));
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < Tile::kOwnHalves; ++h) {
      int32_t part[Tile::kChannelFragments][2] = {};
#pragma unroll
      for (int s = 0; s < Tile::kSumWarps; ++s) {
#pragma unroll
        for (int v = 0; v < kPieces; ++v) {
          const int4 piece =
              exchange[(((first_half + h) * Tile::kSumWarps + s) * kPieces + v) * kWarp];
          part[2 * v][0] += piece.x;
          part[2 * v][1] += piece.y;
          part[2 * v + 1][0] += piece.z;
          part[2 * v + 1][1] += piece.w;
        }
      }
      finish.write(a, plan, tables.terms, tables.channels, class_sums, own, part, first_pixel, h,
                   lane);
    }
  }
  if constexpr (kOutput == ConvResult::kBits) {
    static_assert(sizeof(ConvRow) >= Tile::kChannelWords * sizeof(int32_t));
    if (!plan.pool.pools) return;
    __syncthreads();
    write_pooled<Tile>(finish.pooled, c, plan, first_pixel, first_channel, channels);
  }
}

template <class Tile, int kVector, ConvResult kOutput>
cudaError_t launch_conv_mma(const ConvAddArgs& args, const ConvPool& pool, bool prefetches,
                            const Context& context) {
  static_assert(sizeof(ConvTables<Tile>) == conv_row_bytes<Tile>() && sizeof(ConvCopy) == 8);
  ConvMmaPlan plan{};
  const size_t bytes = plan_conv_mma<Tile>(plan, args, kVector, prefetches);
  if (bytes == 0 || bytes > static_cast<size_t>(context.device.shared_bytes))
    return cudaErrorInvalidConfiguration;
  plan.pool = pool;
  const auto kernel = conv_mma_kernel<Tile, kVector, kOutput>;
  const cudaError_t status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, context.device.shared_bytes);
  if (status != cudaSuccess) return status;
  const dim3 grid(grid_size(ceil_div(plan.pixels, Tile::kPixels)),
                  grid_size(plan.group_tiles * args.conv.groups));
  return launch_dependent(kernel, grid, Tile::kThreads, bytes, context, args, plan);
}

}  // namespace bitgnn::cuda::conv
