// Binary 3 x 3 convolution with few channels. A warp keeps the weights of 64 or 32 outputs in
// registers and walks down the images in strips of 8 x 2 pixels, which are the rows of its mma
// tiles. Lane q of a quad multiplies the taps of column q (the fourth has none), so fragments come
// straight from global memory, rows of pixels are read once per strip, and warps never wait for one
// another. Bound by the comparison of the sums (one and a half instructions per output) and by the
// tensor cores.
//
// With p = popc(a & b), |a| the popcount of the pixels and |b| that of the weights at taps inside
// the image, dot = channels * taps inside + 4 p - 2 |a| - 2 |b|; |a| = 2 h + e is counted by a
// product with ones. Tables indexed by the class of the pixel (which taps are inside) and by e hold
// the values that p - h is compared with, two outputs at a time in the halves of a register.
#pragma once

#include <algorithm>
#include <type_traits>

#include "conv/cuda/strips/pieces.cuh"

namespace bitgnn::cuda::conv {

template <int kWords, int kFragments, int kStride, bool kPools, int kBlocks>
__global__ void __launch_bounds__(kStripWarps* kWarp, kBlocks)
    conv_strips_kernel(const __grid_constant__ ConvArgs c, const __grid_constant__ ConvPool pool,
                       const __grid_constant__ ConvStripPlan p) {
  using Walk = StripWalk<kWords, kStride>;
  using Pairs = StripPairs<kFragments>;
  constexpr int kChannels = StripTile<kFragments>::kChannels;
  constexpr int kTileWords = StripTile<kFragments>::kWords;
  __shared__ __align__(16) int32_t terms[kStripClasses * Pairs::kClass];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const int quad = fragment_quad(lane), group = fragment_group(lane);
  const int first = static_cast<int>(blockIdx.y) * kChannels;

  let_next_start();
  if (!p.prefetches) wait_for_previous();
  StripWeights<kWords, kFragments> weights;
  weights.load(c.w + static_cast<int64_t>(first) * 9 * kWords, kWords, lane, strip_channel);
  make_pair_terms<kFragments>(terms, c, first, thread % kChannels, thread / kChannels,
                              kStripWarps * kWarp / kChannels);
  // Lanes store whole words; lanes of the first row come before those of the second.
  const int own_word = quad & (kTileWords - 1);
  const int word_at = first / kWordBits + own_word;
  uint32_t turned = 0;
#pragma unroll
  for (int t = 0; t < kTileWords; ++t) {
    const int channel = first + t * 32 + lane;
    const uint32_t word = __ballot_sync(
        kFullWarp, c.prepared[static_cast<int64_t>(channel) * (9 + kPreparedExtra) + 10] != 0);
    if (t == own_word) turned = word;
  }
  uint32_t pool_flip = 0;
  if (kPools && pool.flip != nullptr) pool_flip = static_cast<uint32_t>(pool.flip[word_at]);
  turned ^= pool_flip;
  auto [strip, left] = StripShare(p);
  Walk walk;
  walk.begin(strip, c, p, lane);
  __syncthreads();
  if (p.prefetches) wait_for_previous();
  if (left == 0) return;

  // Destination of the lane's word of the strip, and the step to the next strip's.
  const int out_height = kPools ? p.out_height / 2 : p.out_height;
  const int out_width = kPools ? p.out_width / 2 : p.out_width;
  const int out_lines = kPools ? 1 : kStripHeight;
  const int64_t out_step = static_cast<int64_t>(out_lines) * out_width * p.out_words;
  const int out_row = kPools ? 0 : quad / 2;  // of the strip
  bool stores = false;
  int32_t* to = nullptr;
  const auto place_output = [&] {
    const int x = kPools ? walk.x / 2 : walk.x;
    stores = x < out_width && (kTileWords == 2 || quad % 2 == 0) &&
             (!kPools || (quad < 2 && group % 2 == 0));
    to = c.out_bits +
         ((static_cast<int64_t>(walk.image) * out_height + walk.row * out_lines + out_row) *
              out_width +
          x) *
             p.out_words +
         word_at;
  };
  place_output();
  StripWords<kWords> rows[Walk::kRows], ahead[Walk::kNew];
  walk.load_all(rows, p);
  while (true) {
    walk.load_ahead(ahead, p, left > 1);
    StripSums<kFragments> sums;
    sums.template multiply<kWords, kStride>(rows, weights);

    uint32_t halves[2];
    const int32_t* of[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int top = walk.top(p, walk.row) + h * kStride;
      const int32_t count = sums.count[2 * h];
      of[h] = terms +
              Pairs::place(strip_class(top, p.height) * 3 + walk.column_class, 0, quad, count & 1);
      halves[h] = static_cast<uint32_t>(count >> 1) * 0x10001u;
    }
    uint32_t bytes = 0;
#pragma unroll
    for (int step = 0; step < kFragments; step += 4) {
      uint32_t term[2][4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint4 v = *reinterpret_cast<const uint4*>(of[h] + step / 4 * 32);
        term[h][0] = v.x, term[h][1] = v.y, term[h][2] = v.z, term[h][3] = v.w;
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        uint32_t compared[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int j = (step + k) / 2, e = 2 * h + k % 2;
          const uint32_t both = static_cast<uint32_t>(sums.sum[kFragments / 2 + j][e]) * 0x10000u +
                                static_cast<uint32_t>(sums.sum[j][e]);
          compared[h] = both + term[h][k] - halves[h];
        }
        bytes |= spread_signs(compared[0], compared[1]) & 0x01010101u << (step + k);
      }
    }
    // With four fragments, the second half of a lane's channels sits in separate bits of each byte.
    if constexpr (kFragments == 4) bytes |= bytes >> 4;
    uint32_t word = transpose_bytes(bytes, quad) ^ turned;
    if constexpr (kPools) {
      word |= __shfl_xor_sync(kFullWarp, word, 2);
      word |= __shfl_xor_sync(kFullWarp, word, 4);
      word ^= pool_flip;
    }
    if (stores && walk.row * out_lines + out_row < out_height) *to = static_cast<int32_t>(word);
    to += out_step;
    if (--left == 0) break;
    if (walk.advance(c, p, lane)) {
      Walk::shift(rows, ahead);
    } else {
      place_output();
      walk.load_all(rows, p);
    }
  }
}

// Number of blocks along the strips. With few strips, leaves room for the next kernel's blocks,
// which load their weights meanwhile.
inline int64_t strip_blocks(const ConvStripPlan& plan, int64_t tiles, int resident,
                            const Context& context) {
  constexpr int64_t kFew = 8;
  const int64_t most = std::max<int64_t>(1, int64_t{resident} * context.device.sm_count / tiles);
  const int64_t needed = ceil_div(plan.strips, kStripWarps);
  return needed > kFew * most ? most : std::min(needed, std::max<int64_t>(1, most / 2));
}

// As many fragments of weights as fit in registers.
constexpr int strip_fragments(int words) { return words == 8 ? 4 : 8; }

constexpr int strip_resident(int words) { return words == 2 ? 3 : 2; }  // blocks

// Launches a kernel for words per pixel that takes `args` and the plan of the convolution.
template <int kWords, class Kernel, class... Args>
cudaError_t launch_strips(const Kernel& kernel, const ConvArgs& conv, bool prefetches,
                          const Context& context, const Args&... args) {
  const ConvStripPlan plan = plan_conv_strips(conv, prefetches);
  const int64_t tiles = conv.out_channels / StripTile<strip_fragments(kWords)>::kChannels;
  const int64_t blocks = strip_blocks(plan, tiles, strip_resident(kWords), context);
  return launch_dependent(kernel, dim3(grid_size(blocks), grid_size(tiles)), kStripWarps * kWarp, 0,
                          context, args..., plan);
}

// Calls f with the words per pixel and the stride as constants.
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

}  // namespace bitgnn::cuda::conv
