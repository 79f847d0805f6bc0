// Persistent binary convolution for many pixels with short rows under the kernel: blocks keep the
// weights of their channels in shared memory and loop over pixel tiles, which are gathered two
// tiles ahead. Bound by the gathers and by the comparison of the sums, not by the tensor cores.
#pragma once

#include "conv/cuda/mma.cuh"

namespace bitgnn::cuda::conv {

// A thread's share of the gathers: one copy position of every `step`-th row.
template <class Tile, int kVector>
struct WalkCopies {
  ConvCopy copy;
  int first, step;  // first row and row step
  uint32_t to;      // byte offset in the stage
  uint32_t to_step;

  __device__ __forceinline__ void plan(const ConvMmaPlan& p, int pitch, int thread) {
    const int rows = Tile::kThreads / p.row_copies;
    const int row = thread / p.row_copies, at = thread - row * p.row_copies;
    copy = make_copy<kVector>(p, at);
    first = row < rows ? row : Tile::kPixels;
    step = rows;
    to = static_cast<uint32_t>(row * pitch + at * kVector) * sizeof(uint32_t);
    to_step = static_cast<uint32_t>(rows * pitch) * sizeof(uint32_t);
  }

  __device__ __forceinline__ void load(uint32_t stage, const int32_t* x, const ConvRow* rows,
                                       const ConvMmaPlan& p) const {
    uint32_t target = stage + to;
#pragma unroll 2
    for (int row = first; row < Tile::kPixels; row += step) {
      const ConvRow from = rows[row];
      const bool exists =
          static_cast<unsigned>(from.y + copy.y) < static_cast<unsigned>(p.height) &&
          static_cast<unsigned>(from.x + copy.x) < static_cast<unsigned>(p.width);
      copy_words_async<kVector>(target, exists ? x + from.base + copy.offset : x, exists);
      target += to_step;
    }
  }
};

template <class Tile, int kVector, ConvResult kOutput>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    conv_walk_kernel(const __grid_constant__ ConvAddArgs a,
                     const __grid_constant__ ConvMmaPlan plan) {
  extern __shared__ __align__(16) uint32_t ring[];
  __shared__ ConvRow rows[kWalkRows][Tile::kPixels];
  __shared__ ConvRowTerms terms[kWalkRows][Tile::kPixels];
  __shared__ ConvChannelTables<Tile> tables;
  const ConvArgs& c = a.conv;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp, lane = thread % kWarp;
  const int channel_warp = warp % Tile::kChannelWarps, pixel_warp = warp / Tile::kChannelWarps;
  const int group = static_cast<int>(blockIdx.y) / plan.group_tiles;
  const int in_group = (static_cast<int>(blockIdx.y) - group * plan.group_tiles) * Tile::kChannels;
  const int first_channel = group * plan.group_channels + in_group;
  const int channels = min(Tile::kChannels, plan.group_channels - in_group);
  const int32_t* const x = c.x + group * plan.words;

  const int pitch = plan.chunk_words + 4;
  const int stage_words = Tile::kPixels * pitch;
  uint32_t* const weights = ring + kWalkStages * stage_words;
  auto* const tap_sums = reinterpret_cast<int32_t*>(weights + Tile::kChannels * pitch);
  int32_t* const class_sums = tap_sums + plan.tap_sums;

  let_next_start();
  if (!plan.prefetches) wait_for_previous();
  const int32_t* const w = c.w + static_cast<int64_t>(first_channel) * plan.row_words;
  stage_prepared<Tile>(class_sums, c, plan, first_channel, channels);
  commit_copies();
  copy_stage<Tile::kThreads, kVector>(
      weights, Tile::kChannels, plan.chunk_words, pitch, [&](int row, int vector) {
        const int word = vector * kVector;
        const int channel = channel_of_row(row);
        const bool exists = channel < channels && word < plan.row_words;
        return CopySource{exists ? w + channel * plan.row_words + word : c.w, exists};
      });
  commit_copies();
  // The words after the end of each row stay zero.
  for (int at = thread; at < kWalkStages * stage_words; at += Tile::kThreads) ring[at] = 0;
  WalkCopies<Tile, kVector> copies;
  copies.plan(plan, pitch, thread);
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
  const int tiles = (plan.pixels + Tile::kPixels - 1) / Tile::kPixels;
  const int stride = static_cast<int>(gridDim.x);
  const auto make_rows = [&](int tile, int slot) {
    if (tile >= tiles) return;
    for (int at = Tile::kThreads - 1 - thread; at < Tile::kPixels; at += Tile::kThreads)
      make_row<Tile, kOutput>(rows[slot][at], terms[slot][at], a, plan, at, tile * Tile::kPixels);
  };
  int tile = static_cast<int>(blockIdx.x);
  constexpr int kAhead = kWalkStages - 1;
#pragma unroll
  for (int s = 0; s <= kAhead; ++s) make_rows(tile + s * stride, s);
  wait_copies<1>();
  __syncthreads();
  for (int at = thread; at < Tile::kChannels; at += Tile::kThreads)
    make_channel<Tile, kOutput>(tap_sums, tables, class_sums, c, plan, first_channel, channels, at);
  __syncthreads();
  make_classes<Tile, kOutput>(class_sums, tap_sums, tables, plan);
  if (plan.prefetches) wait_for_previous();
  const auto load = [&](int at, int stage, int slot) {
    if (at < tiles) copies.load(shared_address(ring + stage * stage_words), x, rows[slot], plan);
    commit_copies();
  };
#pragma unroll
  for (int s = 0; s < kAhead; ++s) load(tile + s * stride, s, s);

  int stage = 0, slot = 0;
  const auto later = [](int at, int by, int count) {
    return at + by >= count ? at + by - count : at + by;
  };
  const uint32_t* const own_weights =
      weights + channel_warp * Tile::kChannelFragments * kMmaColumns * pitch;
  const int steps = plan.chunk_words / kMmaWords;
  ConvFinish<Tile, kOutput> finish;
#pragma unroll
  for (int h = 0; h < Tile::kHalves; ++h)
    finish.row[h] = pixel_warp * Tile::kPixelFragments * kMmaRows + h * 8 + fragment_group(lane);
  for (; tile < tiles; tile += stride) {
    wait_copies<kAhead - 1>();
    __syncthreads();
    load(tile + kAhead * stride, later(stage, kAhead, kWalkStages), later(slot, kAhead, kWalkRows));
    make_rows(tile + (kAhead + 1) * stride, later(slot, kAhead + 1, kWalkRows));
    finish.load_addends(a, plan, terms[slot], own);
    ConvSums<Tile> sums;
    const uint32_t* const pixels =
        ring + stage * stage_words + pixel_warp * Tile::kPixelFragments * kMmaRows * pitch;
#pragma unroll 2
    for (int step = 0; step < steps; ++step) {
      ConvFragments<Tile> fragments;
      fragments.load(pixels + step * kMmaWords, own_weights + step * kMmaWords, pitch, lane);
      sums.add(fragments);
    }
    finish.write_all(a, plan, terms[slot], tables, class_sums, own, sums, tile * Tile::kPixels,
                     lane);
    stage = later(stage, 1, kWalkStages);
    slot = later(slot, 1, kWalkRows);
  }
}

template <class Tile, int kVector, ConvResult kOutput>
cudaError_t launch_conv_walk(const ConvAddArgs& args, bool prefetches, const Context& context) {
  ConvMmaPlan plan{};
  const size_t bytes = plan_conv_walk<Tile>(plan, args, kVector, prefetches);
  if (bytes == 0) return cudaErrorInvalidConfiguration;
  const auto kernel = conv_walk_kernel<Tile, kVector, kOutput>;
  cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(bytes));
  if (status != cudaSuccess) return status;
  int resident = 0;
  status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, Tile::kThreads, bytes);
  if (status != cudaSuccess) return status;
  if (resident == 0) return cudaErrorInvalidConfiguration;
  const int64_t columns = plan.group_tiles * args.conv.groups;
  const int64_t walkers =
      std::max<int64_t>(1, int64_t{resident} * context.device.sm_count / columns);
  const int64_t tiles = ceil_div(plan.pixels, Tile::kPixels);
  // Balances the blocks as evenly as whole tiles allow.
  const int64_t each = ceil_div(tiles, walkers);
  const dim3 grid(grid_size(ceil_div(tiles, each)), grid_size(columns));
  return launch_dependent(kernel, grid, Tile::kThreads, bytes, context, args, plan);
}

}  // namespace bitgnn::cuda::conv
