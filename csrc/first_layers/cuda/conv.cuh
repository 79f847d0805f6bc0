// First layers on the tensor cores: 16-bit fixed-point images times weights of +-1, as an implicit
// GEMM on bytes. Each block keeps its weights as bytes in shared memory and loops over tiles of
// output pixels; a warp computes 16 pixels by 64 channels. q = 256 * high + low: the high bytes are
// multiplied only if some q of the tile needs them after the trailing zero bits common to all of
// its q are dropped. Bound by reading the images, or by the tensor cores if kernels are large.
#pragma once

#include <algorithm>

#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/shared_memory.h"
#include "first_layers/arguments.h"
#include "first_layers/cuda/conv_region.cuh"
#include "first_layers/cuda/conv_weights.cuh"
#include "first_layers/cuda/outputs.cuh"

namespace bitgnn::cuda::first_layers {

constexpr int kFixedFragments = kFixedWarpChannels / 8;

using FixedSums = int32_t[kFixedFragments][4];

// Adds the products of one plane's bytes. `base` holds the addresses of the first words of pixels g
// and g + 8, where g = lane / 4; `weights` is that of the lane's words of channel g.
template <bool kSigned>
__device__ __forceinline__ void multiply_plane(FixedSums& sum, const FixedPlan& plan,
                                               const char* plane, const int (&base)[2],
                                               const int2* places, const uint32_t* weights) {
  const int step_words = plan.step_words();
#pragma unroll 1
  for (int step = 0; step < plan.steps; ++step) {
    const int2 place = places[step * 4];
    uint32_t bytes[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      bytes[i] = *reinterpret_cast<const uint32_t*>(plane + base[i] + place.x);
      bytes[i + 2] = *reinterpret_cast<const uint32_t*>(plane + base[i] + place.y);
    }
#pragma unroll
    for (int j = 0; j < kFixedFragments; ++j) {
      const uint2 w = *reinterpret_cast<const uint2*>(weights + j * 8 * kFixedStepWords);
      mma_bytes<kSigned>(sum[j], bytes, w.x, w.y);
    }
    weights += step_words;
  }
}

// Packs the signs of this lane's two pixels into words, combined over the four lanes that share
// them: lane `quad` gets word quad % 2 of pixel g + 8 * (quad / 2).
__device__ __forceinline__ uint32_t gather_signs(const FixedSums& sum, int quad) {
  uint32_t part[2][2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int word = 0; word < 2; ++word) {
      uint32_t bits = 0;
#pragma unroll
      for (int j = 3; j >= 0; --j) {
        bits <<= 6;
#pragma unroll
        for (int e = 1; e >= 0; --e)
          bits = __funnelshift_l(static_cast<uint32_t>(sum[word * 4 + j][half * 2 + e]), bits, 1);
      }
      part[half][word] = bits << (2 * quad);
    }
  }
  uint32_t of_half[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t kept = quad % 2 != 0 ? part[half][1] : part[half][0];
    const uint32_t sent = quad % 2 != 0 ? part[half][0] : part[half][1];
    of_half[half] = kept | __shfl_xor_sync(kFullWarp, sent, 1);
  }
  const uint32_t kept = quad / 2 != 0 ? of_half[1] : of_half[0];
  const uint32_t sent = quad / 2 != 0 ? of_half[0] : of_half[1];
  return kept | __shfl_xor_sync(kFullWarp, sent, 2);
}

// Writes values, or makes each sum negative if its comparison fails; masks then invert the bits.
__device__ __forceinline__ void finish_values(FixedSums& sum, const FixedConvArgs& a,
                                              const int64_t (&pixel)[2], int first_channel,
                                              int quad) {
#pragma unroll
  for (int j = 0; j < kFixedFragments; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const FixedOutput output(a, first_channel + j * 8 + quad * 2 + e);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int32_t& dot = sum[j][half * 2 + e];
        if (a.conv.out_bits != nullptr) {
          dot = output.value(a, dot) >= output.threshold ? 0 : -1;
        } else if (pixel[half] >= 0) {
          output.store(a, pixel[half], dot);
        }
      }
    }
  }
}

__device__ __forceinline__ void shift_sums(FixedSums& sum, int places) {
#pragma unroll
  for (int j = 0; j < kFixedFragments; ++j) {
#pragma unroll
    for (int k = 0; k < 4; ++k) sum[j][k] <<= places;
  }
}

template <class T, FixedSource kSource>
__global__ void __launch_bounds__(kFixedThreads, 2)
    fixed_conv_kernel(const FixedConvArgs a, const FixedPlan plan, const float inverse_step) {
  extern __shared__ __align__(16) uint32_t memory[];
  uint32_t* low_plane = memory;
  uint32_t* high_plane = low_plane + plan.plane_words();
  uint32_t* weights = high_plane + plan.plane_words();
  int32_t* places = reinterpret_cast<int32_t*>(weights + plan.weight_words());
  int2* pixels = reinterpret_cast<int2*>(places + plan.place_words());
  int32_t* starts = places + plan.place_words() + plan.pixel_words();
  uint32_t* masks = reinterpret_cast<uint32_t*>(starts + plan.block_channels);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, quad = lane % 4, group = lane / 4;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int block_channel = static_cast<int>(blockIdx.y) * plan.block_channels;
  __shared__ uint32_t found[2];  // alternates between tiles
  if (threadIdx.x < 2) found[threadIdx.x] = 0;
  let_next_start();
  // `prepared` and the weights were written before the previous kernel, so they may be read before
  // the wait.
  if (a.conv.prepared == nullptr) wait_for_previous();
  expand_weights(weights, a, plan, block_channel);
  set_places(places, a, plan);
  set_pixels(pixels, a, plan);
  set_comparison(starts, masks, a, plan, block_channel);
  if (a.conv.prepared != nullptr) wait_for_previous();

  const int channel_warps = plan.block_channels / kFixedWarpChannels;
  const int warp_channel = warp % channel_warps * kFixedWarpChannels;
  const int pixel_warps = kFixedThreads / kWarp / channel_warps;
  const bool compares = a.conv.out_bits != nullptr && a.conv.prepared != nullptr;
  const auto out_words = static_cast<int>(pack::word_count(a.conv.out_channels));
  const auto out_width = static_cast<int>(a.conv.out_width);
  const uint32_t* own_weights = weights + (warp_channel + group) * kFixedStepWords + quad * 2;
  const int2* own_places = reinterpret_cast<const int2*>(places) + quad;
  const FixedWalk walk(plan.pitch / FixedPixels<T, kSource>::kPixels);
  int turn = 0;
#pragma unroll 1
  for (int index = static_cast<int>(blockIdx.x); index < plan.tiles;
       index += static_cast<int>(gridDim.x)) {
    const FixedTile tile(plan, index);
    const int rows = static_cast<int>(a.conv.out_height) - tile.row;
    const int columns = out_width - tile.column;
    const int64_t origin = (tile.image * a.conv.out_height + tile.row) * out_width + tile.column;
    __syncthreads();
    const FixedForm form = stage_region<T, kSource>(low_plane, high_plane, a, plan, tile, walk,
                                                    inverse_step, found + turn);
    turn ^= 1;
    if (threadIdx.x == 0) found[turn] = 0;  // last read before this tile began
#pragma unroll 1
    for (int slab = warp / channel_warps; slab < plan.slabs(); slab += pixel_warps) {
      const int2* slab_pixels = pixels + slab * kFixedWarpPixels;
      const int base[2] = {slab_pixels[group].x, slab_pixels[8 + group].x};
      FixedSums sum;
      const auto each_start = [&](const auto& f) {
#pragma unroll
        for (int j = 0; j < kFixedFragments; ++j) {
          const int2 start =
              *reinterpret_cast<const int2*>(starts + warp_channel + j * 8 + quad * 2);
#pragma unroll
          for (int k = 0; k < 4; ++k) f(sum[j][k], k % 2 == 0 ? start.x : start.y);
        }
      };
      if (form.digits == FixedDigits::kBoth) {
        each_start([](int32_t& own, int32_t) { own = 0; });
        multiply_plane<true>(sum, plan, reinterpret_cast<const char*>(high_plane), base, own_places,
                             own_weights);
        each_start([](int32_t& own, int32_t start) { own = own * 256 + start; });
      } else {
        // start >> zeros is -ceil(limit / 2^zeros), which keeps the comparison exact: full sums are
        // multiples of 2^zeros.
        each_start([&](int32_t& own, int32_t start) { own = start >> form.zeros; });
      }
      if (form.digits == FixedDigits::kSigned)
        multiply_plane<true>(sum, plan, reinterpret_cast<const char*>(low_plane), base, own_places,
                             own_weights);
      else
        multiply_plane<false>(sum, plan, reinterpret_cast<const char*>(low_plane), base, own_places,
                              own_weights);
      const int channel = block_channel + warp_channel;
      const auto pixel_of = [&](int half) {  // index in all images, or -1
        const int at = slab_pixels[half * 8 + group].y;
        const int row = at >> 16, column = at & 0xffff;
        return row < rows && column < columns && row < plan.tile_height
                   ? origin + row * out_width + column
                   : int64_t{-1};
      };
      if (!compares) {
        shift_sums(sum, form.zeros);
        const int64_t both[2] = {pixel_of(0), pixel_of(1)};
        finish_values(sum, a, both, channel, quad);
      }
      if (a.conv.out_bits == nullptr) continue;
      const uint32_t failures = gather_signs(sum, quad);
      const int64_t own = pixel_of(quad / 2);
      const int word = channel / 32 + quad % 2;
      if (own >= 0 && word < out_words)
        a.conv.out_bits[own * out_words + word] =
            static_cast<int32_t>(failures ^ masks[warp_channel / 32 + quad % 2]);
    }
  }
}

template <class T, FixedSource kSource>
cudaError_t launch_fixed_conv(const FixedConvArgs& a, const FixedPlan& plan,
                              const Context& context) {
  const auto kernel = fixed_conv_kernel<T, kSource>;
  const auto bytes = static_cast<size_t>(plan.bytes());
  cudaError_t status = grant_shared_memory(kernel, plan.bytes());
  if (status != cudaSuccess) return status;
  int resident = 0;
  status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kFixedThreads, bytes);
  if (status != cudaSuccess) return status;
  if (resident == 0) return cudaErrorInvalidConfiguration;
  const int64_t columns = ceil_div(a.conv.out_channels, plan.block_channels);
  const int64_t rows = std::min<int64_t>(
      plan.tiles,
      std::max<int64_t>(1, static_cast<int64_t>(resident) * context.device.sm_count / columns));
  return launch_dependent(kernel, dim3(grid_size(rows), grid_size(columns)), kFixedThreads, bytes,
                          context, a, plan, 1.0f / a.step);
}

}  // namespace bitgnn::cuda::first_layers
