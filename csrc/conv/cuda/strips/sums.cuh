// Binary 3 x 3 convolution with few channels in strips of pixels, with a residual addend: sums and
// their bits; see bits.cuh. Bound by the memory traffic of addends and sums: each lane copies the
// addends that it adds itself to shared memory, two strips ahead of the products.
#pragma once

#include "conv/cuda/strips/bits.cuh"

namespace bitgnn::cuda::conv {

constexpr int kAddendStrips = 3;  // in shared memory

// A lane's walk over the addends: in both rows of a strip, eight channels out of each 32.
template <int kTileWords>
struct AddendWalk {
  int image, column, row;
  const int16_t* from;  // of the strip's first row
  int64_t line;         // to the next row
  bool exists;

  __device__ __forceinline__ void place(const ConvAddArgs& a, const ConvStripPlan& p, int group,
                                        int channel) {
    const int x = column * kStripWidth + group;
    exists = x < p.out_width;
    from = static_cast<const int16_t*>(a.addend) +
           addend_offset(a, image, int64_t{row} * kStripHeight, x) + channel;
  }

  // Copies the strip's addends and advances to the next one.
  __device__ __forceinline__ void copy(int4 (*to)[kTileWords][kWarp], const ConvAddArgs& a,
                                       const ConvStripPlan& p, int group, int channel, int lane) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool inside = exists && row * kStripHeight + h < p.out_height;
#pragma unroll
      for (int t = 0; t < kTileWords; ++t) {
        const bool has = inside && channel + t * 32 < static_cast<int>(a.addend_channels);
        const void* at = has ? from + h * line + t * 32 : a.addend;
        copy_async_16(reinterpret_cast<uint32_t*>(&to[h][t][lane]), static_cast<const int32_t*>(at),
                      has ? 16 : 0);
      }
    }
    from += 2 * line;
    if (++row < p.rows) return;
    row = 0;
    if (++column == p.columns) {
      column = 0;
      ++image;
    }
    place(a, p, group, channel);
  }
};

template <int kWords, int kFragments, int kStride, int kBlocks>
__global__ void __launch_bounds__(kStripWarps* kWarp, kBlocks)
    conv_strip_sums_kernel(const __grid_constant__ ConvAddArgs a,
                           const __grid_constant__ ConvStripPlan p) {
  using Walk = StripWalk<kWords, kStride>;
  constexpr int kChannels = StripTile<kFragments>::kChannels;
  constexpr int kTileWords = StripTile<kFragments>::kWords;
  __shared__ __align__(16) int32_t terms[kStripClasses * kChannels];
  __shared__ __align__(16) int32_t limits[kChannels];
  __shared__ int4 addends[kStripWarps][kAddendStrips][2][kTileWords][kWarp];
  const ConvArgs& c = a.conv;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const int quad = fragment_quad(lane), group = fragment_group(lane);
  const int first = static_cast<int>(blockIdx.y) * kChannels;
  const int channel = first + quad * 8;  // the lane's first

  let_next_start();
  if (!p.prefetches) wait_for_previous();
  StripWeights<kWords, kFragments> weights;
  weights.load(c.w + static_cast<int64_t>(first) * 9 * kWords, kWords, lane, strip_channel);
  make_sum_terms<kChannels>(terms, c, first, thread % kChannels, thread / kChannels,
                            kStripWarps * kWarp / kChannels);
  // Lanes store whole words; lanes of the first row come before those of the second.
  const int own_word = quad & (kTileWords - 1);
  uint32_t turned = 0;
  if (c.out_bits != nullptr) {
    if (thread < kChannels) limits[thread] = total_limit(c.threshold, first + thread);
#pragma unroll
    for (int t = 0; t < kTileWords; ++t) {
      const uint32_t word =
          __ballot_sync(kFullWarp, c.flip != nullptr && c.flip[first + t * 32 + lane]);
      if (t == own_word) turned = word;
    }
  }
  auto [strip, left] = StripShare(p);
  Walk walk;
  walk.begin(strip, c, p, lane);
  __syncthreads();
  if (p.prefetches) wait_for_previous();
  if (left == 0) return;

  AddendWalk<kTileWords> added{walk.image, walk.column, walk.row, nullptr, 0, false};
  int to_copy = a.addend != nullptr ? left : 0;
  if (to_copy > 0) {
    added.line = a.addend_stride_height * a.addend_width * a.addend_channels;
    added.place(a, p, group, channel);
  }
  auto* const own_addends = addends[thread / kWarp];
  const auto copy_addends = [&](int slot) {
    if (to_copy > 0) {
      added.copy(own_addends[slot], a, p, group, channel, lane);
      --to_copy;
    }
    commit_copies();
  };
#pragma unroll
  for (int s = 0; s < kAddendStrips - 1; ++s) copy_addends(s);

  const int64_t sums_line = static_cast<int64_t>(p.out_width) * c.out_channels;
  const int64_t bits_line = static_cast<int64_t>(p.out_width) * p.out_words;
  int16_t* sums_to = nullptr;
  int32_t* bits_to = nullptr;
  const auto place_outputs = [&] {
    const int64_t pixel =
        (static_cast<int64_t>(walk.image) * p.out_height + walk.row * kStripHeight) * p.out_width +
        walk.x;
    sums_to = static_cast<int16_t*>(a.sums) + pixel * c.out_channels + channel;
    bits_to =
        c.out_bits + pixel * p.out_words + first / kWordBits + own_word + quad / 2 * bits_line;
  };
  place_outputs();
  StripWords<kWords> rows[Walk::kRows], ahead[Walk::kNew];
  walk.load_all(rows, p);
  int slot = 0;
  while (true) {
    walk.load_ahead(ahead, p, left > 1);
    copy_addends(slot == 0 ? kAddendStrips - 1 : slot - 1);
    StripSums<kFragments> sums;
    sums.template multiply<kWords, kStride>(rows, weights);
    wait_copies<kAddendStrips - 1>();

    const bool exists = walk.x < p.out_width;
    uint32_t bits[2] = {0, 0};
#pragma unroll
    for (int t = kTileWords - 1; t >= 0; --t) {
      int32_t limit[8];
      load_eight(limit, limits + t * 32 + quad * 8);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int which =
            strip_class(walk.top(p, walk.row) + h * kStride, p.height) * 3 + walk.column_class;
        int32_t total[8];
        load_eight(total, terms + which * kChannels + t * 32 + quad * 8);
        int4 v = make_int4(0, 0, 0, 0);
        if (a.addend != nullptr) v = own_addends[slot][h][t][lane];
        const int32_t pairs[4] = {v.x, v.y, v.z, v.w};
        const int32_t counted = 2 * sums.count[2 * h];
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          const int32_t pair = pairs[k / 2];
          const int32_t addend =
              k % 2 == 0 ? static_cast<int32_t>(static_cast<int16_t>(pair & 0xffff)) : pair >> 16;
          total[k] += addend - counted;
          total[k] += 4 * sums.sum[t * 4 + k / 2][2 * h + k % 2];
        }
        if (a.sums != nullptr && exists && walk.row * kStripHeight + h < p.out_height)
          store_halves(sums_to + h * sums_line + t * 32, total);
#pragma unroll
        for (int k = 7; k >= 0; --k) bits[h] = push_sign(bits[h], limit[k] - total[k]);
      }
    }
    if (c.out_bits != nullptr) {
      const uint32_t word = transpose_bytes(bits[0] | bits[1] << 16, quad) ^ turned;
      if (exists && (kTileWords == 2 || quad % 2 == 0) &&
          walk.row * kStripHeight + quad / 2 < p.out_height)
        *bits_to = static_cast<int32_t>(word);
    }
    sums_to += 2 * sums_line;
    bits_to += 2 * bits_line;
    slot = slot + 1 == kAddendStrips ? 0 : slot + 1;
    if (--left == 0) break;
    if (walk.advance(c, p, lane)) {
      Walk::shift(rows, ahead);
    } else {
      place_outputs();
      walk.load_all(rows, p);
    }
  }
}

}  // namespace bitgnn::cuda::conv
