// Binary 3 x 3 convolution of few channels: a warp keeps the weights of 64 or 32 outputs in
// registers and walks down the images in strips of 8 x 2 pixels, which are the rows of its matrix
// products. Lane q of a quad multiplies the taps of column q (the fourth has none), so that
// fragments come straight from global memory, rows of pixels are read once a strip, and warps never
// wait for one another. Bound by the comparison of the sums (two instructions an output) and by the
// tensor cores.
//
// With p = popc(a & b), |a| the set bits of the pixels and |b| those of the weights at taps inside
// the image, dot = channels * taps inside + 4 p - 2 |a| - 2 |b|; |a| = 2 h + e is counted by a
// product with ones. Tables by the class of the pixel (which taps are inside) and by e hold what p
// is compared with.
#pragma once

#include <algorithm>
#include <type_traits>

#include "bitgnn/cuda/conv_strip_pieces.cuh"

namespace bitgnn::cuda {

template <int kWords, int kFragments, int kStride, ConvResult kOutput, bool kPools, int kBlocks>
__global__ void __launch_bounds__(kStripWarps* kWarp, kBlocks)
    conv_strips_kernel(const __grid_constant__ ConvAddArgs a, const __grid_constant__ ConvPool pool,
                       const __grid_constant__ ConvStripPlan p) {
  using Walk = StripWalk<kWords, kStride>;
  constexpr int kChannels = StripTile<kFragments>::kChannels;
  constexpr int kTileWords = StripTile<kFragments>::kWords;
  constexpr bool kAdds = kOutput == ConvResult::kSums;
  __shared__ __align__(16) int32_t terms[kStripClasses * (kAdds ? 1 : 2) * kChannels];
  __shared__ __align__(16) int32_t limits[kAdds ? kChannels : 4];
  const ConvArgs& c = a.conv;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const int quad = fragment_quad(lane);
  const int first = static_cast<int>(blockIdx.y) * kChannels;

  let_next_start();
  if (!p.prefetches) wait_for_previous();
  StripWeights<kWords, kFragments> weights;
  weights.load(c.w + static_cast<int64_t>(first) * 9 * kWords, kWords, lane, strip_channel);
  make_strip_terms<kOutput, kChannels>(terms, c, first, thread % kChannels, thread / kChannels,
                                       kStripWarps * kWarp / kChannels);
  if constexpr (kAdds) {
    if (thread < kChannels && c.out_bits != nullptr)
      limits[thread] = total_limit(c.threshold, first + thread);
  }
  // Lanes store whole words, those of the first row before those of the second.
  const int own_word = quad & (kTileWords - 1);
  const bool stores = kTileWords == 2 || quad % 2 == 0;
  uint32_t turned = 0;
#pragma unroll
  for (int t = 0; t < kTileWords; ++t) {
    bool turns = false;
    const int channel = first + t * 32 + lane;
    if (kAdds)
      turns = c.out_bits != nullptr && c.flip != nullptr && c.flip[channel];
    else
      turns = c.prepared[static_cast<int64_t>(channel) * (9 + kPreparedExtra) + 10] != 0;
    const uint32_t word = __ballot_sync(kFullWarp, turns);
    if (t == own_word) turned = word;
  }
  uint32_t pool_flip = 0;
  if (kPools && pool.flip != nullptr)
    pool_flip = static_cast<uint32_t>(pool.flip[first / kWordBits + own_word]);
  turned ^= pool_flip;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * kStripWarps;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kStripWarps + thread / kWarp;
  auto left = static_cast<int>(p.strips * (warp + 1) / warps - p.strips * warp / warps);
  Walk walk;
  walk.begin(p.strips * warp / warps, c, p, lane);
  __syncthreads();
  if (p.prefetches) wait_for_previous();
  if (left == 0) return;

  StripWords<kWords> rows[Walk::kRows];
  const auto load_all = [&] {
#pragma unroll
    for (int k = 0; k < Walk::kRows; ++k) rows[k] = walk.load(p, walk.top(p, walk.row) + k);
  };
  load_all();
  const int channel = first + quad * 8;  // the lane's first
  while (true) {
    StripAddends<kTileWords> addends;
    if constexpr (kAdds) addends.load(a, p, walk.image, walk.row, walk.x, channel);
    StripWords<kWords> ahead[Walk::kNew];
    const int below = walk.top(p, walk.row + 1) + Walk::kRows - Walk::kNew;
#pragma unroll
    for (int k = 0; k < Walk::kNew; ++k)
      ahead[k] = left > 1 && walk.row + 1 < p.rows ? walk.load(p, below + k) : StripWords<kWords>{};
    StripSums<kFragments> sums;
    sums.template multiply<kWords, kStride>(rows, weights);

    uint32_t bytes = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int y = walk.row * kStripHeight + h;
      const int which = strip_class(y * kStride - p.padding_top, p.height) * 3 + walk.column_class;
      const int32_t count = sums.count[2 * h];
      uint32_t bits = 0;
      if constexpr (!kAdds) {
        const int32_t* of = terms + (which * 2 + (count & 1)) * kChannels + quad * 8;
        const int32_t half = count >> 1;
#pragma unroll
        for (int t = kTileWords - 1; t >= 0; --t) {
          int32_t term[8];
          load_eight(term, of + t * 32);
#pragma unroll
          for (int k = 7; k >= 0; --k)
            bits = push_strip_sign(bits, term[k] + half - sums.sum[t * 4 + k / 2][2 * h + k % 2]);
        }
      } else {
        const int32_t* of = terms + which * kChannels + quad * 8;
        const bool exists = y < p.out_height && walk.x < p.out_width;
        const int64_t pixel =
            (static_cast<int64_t>(walk.image) * p.out_height + y) * p.out_width + walk.x;
        auto* to = static_cast<int16_t*>(a.sums) + pixel * c.out_channels + channel;
#pragma unroll
        for (int t = kTileWords - 1; t >= 0; --t) {
          int32_t total[8];
          load_eight(total, of + t * 32);
          const int4& v = addends.of[h][t];
          const int32_t pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
          for (int k = 0; k < 8; ++k) {
            const int32_t pair = pairs[k / 2];
            const int32_t addend =
                k % 2 == 0 ? static_cast<int32_t>(static_cast<int16_t>(pair & 0xffff)) : pair >> 16;
            total[k] += addend - 2 * count;
            total[k] += 4 * sums.sum[t * 4 + k / 2][2 * h + k % 2];
          }
          if (a.sums != nullptr && exists)
            *reinterpret_cast<int4*>(to + t * 32) =
                make_int4(clamp_halves(total[0], total[1]), clamp_halves(total[2], total[3]),
                          clamp_halves(total[4], total[5]), clamp_halves(total[6], total[7]));
          if (c.out_bits != nullptr) {
            int32_t limit[8];
            load_eight(limit, limits + t * 32 + quad * 8);
#pragma unroll
            for (int k = 7; k >= 0; --k) bits = push_strip_sign(bits, limit[k] - total[k]);
          }
        }
      }
      bytes |= bits << 16 * h;
    }
    if (!kAdds || c.out_bits != nullptr) {
      uint32_t word = transpose_bytes(bytes, quad) ^ turned;
      const int which = first / kWordBits + own_word;
      if constexpr (kPools) {
        word |= __shfl_xor_sync(kFullWarp, word, 2);
        word |= __shfl_xor_sync(kFullWarp, word, 4);
        const int height = p.out_height / 2, width = p.out_width / 2;
        if (stores && quad < 2 && fragment_group(lane) % 2 == 0 && walk.row < height &&
            walk.x / 2 < width)
          c.out_bits[((static_cast<int64_t>(walk.image) * height + walk.row) * width + walk.x / 2) *
                         p.out_words +
                     which] = static_cast<int32_t>(word ^ pool_flip);
      } else {
        const int y = walk.row * kStripHeight + quad / 2;
        if (stores && y < p.out_height && walk.x < p.out_width)
          c.out_bits[((static_cast<int64_t>(walk.image) * p.out_height + y) * p.out_width +
                      walk.x) *
                         p.out_words +
                     which] = static_cast<int32_t>(word);
      }
    }
    if (--left == 0) break;
    if (walk.advance(c, p, lane)) {
#pragma unroll
      for (int k = 0; k < Walk::kRows; ++k)
        rows[k] = k < Walk::kRows - Walk::kNew ? rows[k + Walk::kNew]
                                               : ahead[k - (Walk::kRows - Walk::kNew)];
    } else {
      load_all();
    }
  }
}

template <int kWords, int kStride, ConvResult kOutput, bool kPools>
cudaError_t launch_conv_strips(const ConvAddArgs& args, const ConvPool& pool, bool prefetches,
                               const Context& context) {
  // As many weights as registers hold.
  constexpr int kFragments = kWords == 8 ? 4 : 8;
  constexpr int kBlocks = kWords == 2 ? 3 : 2;
  const ConvStripPlan plan = plan_conv_strips(args.conv, prefetches);
  const int64_t tiles = args.conv.out_channels / StripTile<kFragments>::kChannels;
  // Few strips leave room for the kernel behind, which loads its weights meanwhile.
  constexpr int64_t kFew = 8;
  const int64_t most = std::max<int64_t>(1, int64_t{kBlocks} * context.device.sm_count / tiles);
  const int64_t needed = ceil_div(plan.strips, kStripWarps);
  const int64_t blocks =
      needed > kFew * most ? most : std::min(needed, std::max<int64_t>(1, most / 2));
  const dim3 grid(grid_size(blocks), grid_size(tiles));
  return launch_dependent(conv_strips_kernel<kWords, kFragments, kStride, kOutput, kPools, kBlocks>,
                          grid, kStripWarps * kWarp, 0, context, args, pool, plan);
}

// Calls f with the words of a pixel and the stride as constants.
template <class F>
cudaError_t with_strip_shape(const ConvArgs& c, const F& f) {
  const auto with_words = [&](auto words) {
    if (c.stride_height == 1) return f(words, std::integral_constant<int, 1>{});
    return f(words, std::integral_constant<int, 2>{});
  };
  switch (c.channels) {
    case 64:
      return with_words(std::integral_constant<int, 2>{});
    case 128:
      return with_words(std::integral_constant<int, 4>{});
    default:
      return with_words(std::integral_constant<int, 8>{});
  }
}

}  // namespace bitgnn::cuda
