// First layers on the tensor cores: images in 16-bit fixed point times weights of +-1, an implicit
// product of bytes. Every block keeps its weights as bytes in shared memory and walks tiles of
// output pixels; a warp takes 16 pixels and 64 channels. q = 256 * high + low: the high bytes are
// multiplied only where a tile has any. Bound by reading the images, by the tensor cores where
// kernels are large.
#pragma once

#include <algorithm>

#include "bitgnn/cuda/dependent_launch.cuh"
#include "bitgnn/cuda/fixed_conv_region.cuh"
#include "bitgnn/cuda/fixed_conv_weights.cuh"
#include "bitgnn/cuda/fixed_outputs.cuh"
#include "bitgnn/cuda/shared_memory.h"

namespace bitgnn::cuda {

constexpr int kFixedFragments = kFixedWarpChannels / 8;
constexpr int kFixedPixels = 16;  // of a warp

using FixedSums = int32_t[kFixedFragments][4];

// Bytes of 16 pixels over one step, the high ones and the low ones of q. `base` are the bytes of
// the region in front of the first q of pixels g and g + 8, where g = lane / 4.
template <bool kAligned>
__device__ __forceinline__ void load_bytes(uint32_t (&low)[4], uint32_t (&high)[4],
                                           const char* const (&base)[2], const int32_t* places,
                                           int step, int quad) {
  if constexpr (kAligned) {
    const int2 place = reinterpret_cast<const int2*>(places)[step * 4 + quad];
#pragma unroll
    for (int word = 0; word < 2; ++word) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint2 q =
            *reinterpret_cast<const uint2*>(base[half] + (word == 0 ? place.x : place.y));
        low[word * 2 + half] = low_bytes(q.x, q.y);
        high[word * 2 + half] = high_bytes(q.x, q.y);
      }
    }
  } else {
#pragma unroll
    for (int word = 0; word < 2; ++word) {
      const int4 place = reinterpret_cast<const int4*>(places)[(step * 4 + quad) * 2 + word];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto q = [&](int at) -> uint32_t {
          return *reinterpret_cast<const uint16_t*>(base[half] + at);
        };
        const uint32_t first = __byte_perm(q(place.x), q(place.y), 0x5410);
        const uint32_t second = __byte_perm(q(place.z), q(place.w), 0x5410);
        low[word * 2 + half] = low_bytes(first, second);
        high[word * 2 + half] = high_bytes(first, second);
      }
    }
  }
}

// Adds the products of 16 pixels and 64 channels to the sums.
template <bool kAligned, FixedDigits kDigits>
__device__ __forceinline__ void multiply_bytes(FixedSums& sum, const FixedPlan& plan,
                                               const uint32_t* weights, const int32_t* places,
                                               const char* const (&base)[2], int first_channel,
                                               int lane) {
  const int quad = lane % 4, group = lane / 4;
  int32_t high_sum[kDigits == FixedDigits::kBoth ? kFixedFragments : 1][4] = {};
#pragma unroll 1
  for (int step = 0; step < plan.steps; ++step) {
    uint32_t low[4], high[4];
    load_bytes<kAligned>(low, high, base, places, step, quad);
#pragma unroll
    for (int j = 0; j < kFixedFragments; ++j) {
      const uint2 w = *reinterpret_cast<const uint2*>(
          weights + weight_place(plan, step, first_channel + j * 8 + group, quad));
      mma_bytes<kDigits == FixedDigits::kSigned>(sum[j], low, w.x, w.y);
      if constexpr (kDigits == FixedDigits::kBoth) mma_bytes<true>(high_sum[j], high, w.x, w.y);
    }
  }
  if constexpr (kDigits == FixedDigits::kBoth) {
#pragma unroll
    for (int j = 0; j < kFixedFragments; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) sum[j][k] += high_sum[j][k] * 256;
    }
  }
}

// Signs of the sums of this lane's two pixels as bits of words, put together by the four lanes that
// share them: lane `quad` gets word quad % 2 of pixel g + 8 * (quad / 2).
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

// Writes values, or makes the sums negative where a comparison of values fails; masks turn the
// bits.
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

// kWidth: elements read at once.
template <class T, bool kAligned, int kWidth>
__global__ void __launch_bounds__(kFixedThreads, 2)
    fixed_conv_kernel(const FixedConvArgs a, const FixedPlan plan, const float inverse_step) {
  extern __shared__ __align__(16) uint32_t memory[];
  uint32_t* weights = memory;
  int32_t* places = reinterpret_cast<int32_t*>(weights + plan.weight_words());
  int32_t* starts = places + plan.place_words();
  uint32_t* masks = reinterpret_cast<uint32_t*>(starts + plan.block_channels);
  int16_t* region = reinterpret_cast<int16_t*>(starts + plan.comparison_words());
  const int lane = static_cast<int>(threadIdx.x) % kWarp, quad = lane % 4;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int block_channel = static_cast<int>(blockIdx.y) * plan.block_channels;
  let_next_start();
  // What is prepared, and the weights it is of, lie ready since before the previous kernel.
  if (a.conv.prepared == nullptr) wait_for_previous();
  expand_weights(weights, a, plan, block_channel);
  set_places(places, a, plan);
  set_comparison(starts, masks, a, plan, block_channel);
  if (a.conv.prepared != nullptr) wait_for_previous();

  const int channel_warps = plan.block_channels / kFixedWarpChannels;
  const int warp_channel = warp % channel_warps * kFixedWarpChannels;
  const int pixel_warps = kFixedThreads / kWarp / channel_warps;
  const int pixels = plan.tile_height * plan.tile_width;
  const bool compares = a.conv.out_bits != nullptr && a.conv.prepared != nullptr;
  const auto out_words = static_cast<int>(word_count(a.conv.out_channels));
#pragma unroll 1
  for (int64_t index = blockIdx.x; index < plan.tiles; index += gridDim.x) {
    const FixedTile tile(plan, index);
    __syncthreads();
    const FixedDigits digits = stage_region<T, kWidth>(region, a, plan, tile, inverse_step);
#pragma unroll 1
    for (int first = warp / channel_warps * kFixedPixels; first < pixels;
         first += pixel_warps * kFixedPixels) {
      const char* base[2];
      int64_t pixel[2];  // of all images, or -1
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int own = min(first + lane / 4 + half * 8, pixels - 1);
        const int row = own / plan.tile_width, column = own - row * plan.tile_width;
        base[half] = reinterpret_cast<const char*>(
            region + row * static_cast<int>(a.conv.stride_height) * plan.pitch +
            column * static_cast<int>(a.conv.stride_width * a.conv.channels));
        const int y = tile.row + row, x = tile.column + column;
        const bool exists =
            first + lane / 4 + half * 8 < pixels && y < a.conv.out_height && x < a.conv.out_width;
        pixel[half] =
            exists ? (tile.image * a.conv.out_height + y) * a.conv.out_width + x : int64_t{-1};
      }
      FixedSums sum;
#pragma unroll
      for (int j = 0; j < kFixedFragments; ++j) {
        const int2 start = *reinterpret_cast<const int2*>(starts + warp_channel + j * 8 + quad * 2);
        sum[j][0] = sum[j][2] = start.x;
        sum[j][1] = sum[j][3] = start.y;
      }
      if (digits == FixedDigits::kBoth)
        multiply_bytes<kAligned, FixedDigits::kBoth>(sum, plan, weights, places, base, warp_channel,
                                                     lane);
      else if (digits == FixedDigits::kSigned)
        multiply_bytes<kAligned, FixedDigits::kSigned>(sum, plan, weights, places, base,
                                                       warp_channel, lane);
      else
        multiply_bytes<kAligned, FixedDigits::kUnsigned>(sum, plan, weights, places, base,
                                                         warp_channel, lane);
      const int channel = block_channel + warp_channel;
      if (!compares) finish_values(sum, a, pixel, channel, quad);
      if (a.conv.out_bits == nullptr) continue;
      const uint32_t failures = gather_signs(sum, quad);
      const int64_t own = quad / 2 != 0 ? pixel[1] : pixel[0];
      const int word = channel / 32 + quad % 2;
      if (own >= 0 && word < out_words)
        a.conv.out_bits[own * out_words + word] =
            static_cast<int32_t>(failures ^ masks[warp_channel / 32 + quad % 2]);
    }
  }
}

template <class T, bool kAligned, int kWidth>
cudaError_t launch_fixed_conv(const FixedConvArgs& a, const FixedPlan& plan,
                              const Context& context) {
  const auto kernel = fixed_conv_kernel<T, kAligned, kWidth>;
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

}  // namespace bitgnn::cuda
