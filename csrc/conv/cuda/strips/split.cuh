// Binary 3 x 3 convolution with 512 channels and few pixels, in strips of 8 x 2 pixels. The four
// warps of a block split the channels of a pixel, keep their part of the weights of 64 outputs in
// registers, exchange their sums, and each finish a part of the outputs. Bound by latency: after
// the previous kernel ends there is one load of pixels, the products, the exchange and the stores.
//
// With v the sum of 2 popc(a & b) - |a| over the channels and |b| the set weights at taps inside
// the image, dot = channels * taps inside + 2 v - 2 |b|.
#pragma once

#include <algorithm>

#include "conv/cuda/strips/pieces.cuh"

namespace bitgnn::cuda::conv {

// A warp's words of a pixel and fragments of outputs, of which it finishes kOwn: kLane consecutive
// channels per lane.
struct SplitStrip {
  static constexpr int kParts = kStripWarps;
  static constexpr int kWords = 4, kFragments = 8;
  static constexpr int kChannels = kFragments * kMmaColumns;
  static constexpr int kOwn = kFragments / kParts;
  static constexpr int kLane = 2 * kOwn;
  static constexpr int kExchanged = kParts * kParts * kWarp * 2 * kLane;  // words

  // The channel of column n of fragment j: those that a lane finishes are consecutive.
  __device__ static int channel(int j, int n) {
    return j / kOwn * kOwn * kMmaColumns + n / 2 * kLane + j % kOwn * 2 + n % 2;
  }
};

template <int kStride, ConvResult kOutput, int kBlocks>
__global__ void __launch_bounds__(kStripWarps* kWarp, kBlocks)
    conv_split_strips_kernel(const __grid_constant__ ConvAddArgs a,
                             const __grid_constant__ ConvPool pool,
                             const __grid_constant__ ConvStripPlan p) {
  using Split = SplitStrip;
  constexpr int kParts = Split::kParts, kWords = Split::kWords, kLane = Split::kLane;
  constexpr int kChannels = Split::kChannels, kRows = kStride + 3;
  constexpr bool kAdds = kOutput == ConvResult::kSums;
  using Words = StripWords<kWords>;
  __shared__ __align__(16) int32_t terms[kStripClasses * kChannels];
  __shared__ __align__(16) int32_t limits[kAdds ? kChannels : 4];
  __shared__ __align__(16) int32_t exchanged[Split::kExchanged];
  const ConvArgs& c = a.conv;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, part = thread / kWarp;
  const int quad = fragment_quad(lane), group = fragment_group(lane);
  const int first = static_cast<int>(blockIdx.y) * kChannels;

  let_next_start();
  if (!p.prefetches) wait_for_previous();
  StripWeights<kWords, Split::kFragments> weights;
  weights.load(c.w + static_cast<int64_t>(first) * 9 * kWords * kParts + part * kWords,
               kWords * kParts, lane, Split::channel);
  make_dot_terms<kOutput, kChannels>(terms, c, first, thread % kChannels, thread / kChannels,
                                     kStripWarps * kWarp / kChannels);
  if constexpr (kAdds) {
    if (thread < kChannels && c.out_bits != nullptr)
      limits[thread] = total_limit(c.threshold, first + thread);
  }
  // Inversion mask of the warp's channels, in the order in which the quad holds their bits.
  const int own = first + part * kLane * 4;
  uint32_t turned = 0, pool_flip = 0;
  if (c.out_bits != nullptr) {
    constexpr int kOwnChannels = kLane * 4;
    const int channel = own + lane % kOwnChannels;
    bool turns;
    if (kAdds)
      turns = c.flip != nullptr && c.flip[channel];
    else
      turns = c.prepared[static_cast<int64_t>(channel) * (9 + kPreparedExtra) + 10] != 0;
    turned = __ballot_sync(kFullWarp, turns);
    if (!kAdds && pool.flip != nullptr)
      pool_flip = static_cast<uint32_t>(pool.flip[own / kWordBits]) >> own % kWordBits;
  }
  __syncthreads();
  if (p.prefetches) wait_for_previous();

  const int channel = own + quad * kLane;  // the lane's first
  for (int strip = static_cast<int>(blockIdx.x); strip < p.strips;
       strip += static_cast<int>(gridDim.x)) {
    const int line = strip / p.rows, row = strip - line * p.rows;
    const int image = line / p.columns;
    const int x = (line - image * p.columns) * kStripWidth + group;
    const int left = x * kStride - p.padding_left;
    const int top = row * kStripHeight * kStride - p.padding_top;
    const bool reads =
        quad < 3 && static_cast<unsigned>(left + quad) < static_cast<unsigned>(p.width);
    const auto* const from = reinterpret_cast<const Words*>(c.x);
    Words rows[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      rows[k] = Words{};
      if (reads && static_cast<unsigned>(top + k) < static_cast<unsigned>(p.height))
        rows[k] =
            from[((static_cast<int64_t>(image) * p.height + top + k) * p.width + left + quad) *
                     kParts +
                 part];
    }
    int32_t addends[2][kLane / 2] = {};
    if constexpr (kAdds) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int y = row * kStripHeight + h;
        if (a.addend != nullptr && y < p.out_height && x < p.out_width &&
            channel < static_cast<int>(a.addend_channels)) {
          const auto* at =
              static_cast<const int16_t*>(a.addend) + addend_offset(a, image, y, x) + channel;
          load_four_halves(addends[h], at);
        }
      }
    }
    StripSums<Split::kFragments> sums;
    sums.template multiply<kWords, kStride>(rows, weights);

    // Every warp hands its sums to the warp that finishes them.
    auto* const mine = reinterpret_cast<int4*>(exchanged);
#pragma unroll
    for (int to = 0; to < kParts; ++to) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int k = 0; k < kLane / 4; ++k) {
          const int j = to * Split::kOwn + 2 * k, e = 2 * h;
          const int32_t count = sums.count[e];
          mine[(((to * kParts + part) * 2 + h) * (kLane / 4) + k) * kWarp + lane] =
              make_int4(2 * sums.sum[j][e] - count, 2 * sums.sum[j][e + 1] - count,
                        2 * sums.sum[j + 1][e] - count, 2 * sums.sum[j + 1][e + 1] - count);
        }
      }
    }
    __syncthreads();
    uint32_t words[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int y = row * kStripHeight + h;
      const int which = strip_class(top + h * kStride, p.height) * 3 + strip_class(left, p.width);
      const int32_t* const of = terms + which * kChannels + channel - first;
      int32_t v[kLane];
#pragma unroll
      for (int k = 0; k < kLane / 4; ++k) {
        int4 sum = make_int4(0, 0, 0, 0);
#pragma unroll
        for (int s = 0; s < kParts; ++s) {
          const int4 piece = mine[(((part * kParts + s) * 2 + h) * (kLane / 4) + k) * kWarp + lane];
          sum.x += piece.x, sum.y += piece.y, sum.z += piece.z, sum.w += piece.w;
        }
        v[4 * k] = sum.x, v[4 * k + 1] = sum.y, v[4 * k + 2] = sum.z, v[4 * k + 3] = sum.w;
      }
      uint32_t bits = 0;
      if constexpr (kAdds) {
#pragma unroll
        for (int k = 0; k < kLane; ++k) {
          const int32_t pair = addends[h][k / 2];
          const int32_t addend =
              k % 2 == 0 ? static_cast<int32_t>(static_cast<int16_t>(pair & 0xffff)) : pair >> 16;
          v[k] = of[k] + 2 * v[k] + addend;
        }
        if (a.sums != nullptr && y < p.out_height && x < p.out_width) {
          const int64_t pixel = (static_cast<int64_t>(image) * p.out_height + y) * p.out_width + x;
          store_halves(static_cast<int16_t*>(a.sums) + pixel * c.out_channels + channel, v);
        }
        if (c.out_bits != nullptr) {
#pragma unroll
          for (int k = kLane - 1; k >= 0; --k)
            bits = push_sign(bits, limits[channel - first + k] - v[k]);
        }
      } else {
#pragma unroll
        for (int k = kLane - 1; k >= 0; --k) bits = push_sign(bits, of[k] - v[k]);
      }
      words[h] = bits << quad * kLane;
    }
    if (c.out_bits != nullptr) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        words[h] |= __shfl_xor_sync(kFullWarp, words[h], 1);
        words[h] |= __shfl_xor_sync(kFullWarp, words[h], 2);
        words[h] ^= turned;
      }
      if (!kAdds && pool.pools) {
        uint32_t word = (words[0] ^ pool_flip) | (words[1] ^ pool_flip);
        word |= __shfl_xor_sync(kFullWarp, word, 4);
        const int height = p.out_height / 2, width = p.out_width / 2;
        if (quad == 0 && group % 2 == 0 && row < height && x / 2 < width)
          store_half_word(
              c.out_bits,
              ((static_cast<int64_t>(image) * height + row) * width + x / 2) * p.out_words, own,
              word ^ pool_flip);
      } else {
        const int y = row * kStripHeight + quad;
        if (quad < 2 && y < p.out_height && x < p.out_width)
          store_half_word(
              c.out_bits,
              ((static_cast<int64_t>(image) * p.out_height + y) * p.out_width + x) * p.out_words,
              own, quad == 0 ? words[0] : words[1]);
      }
    }
    // The exchanged sums have been read before the next strip's sums overwrite them.
    __syncthreads();
  }
}

template <int kStride, ConvResult kOutput>
cudaError_t launch_conv_split_strips(const ConvAddArgs& args, const ConvPool& pool, bool prefetches,
                                     const Context& context) {
  constexpr int kBlocks = 2;
  const ConvStripPlan plan = plan_conv_strips(args.conv, prefetches);
  const int64_t tiles = args.conv.out_channels / SplitStrip::kChannels;
  const int64_t most = std::max<int64_t>(1, int64_t{kBlocks} * context.device.sm_count / tiles);
  const dim3 grid(grid_size(std::min<int64_t>(most, plan.strips)), grid_size(tiles));
  return launch_dependent(conv_split_strips_kernel<kStride, kOutput, kBlocks>, grid,
                          kStripWarps * kWarp, 0, context, args, pool, plan);
}

}  // namespace bitgnn::cuda::conv
