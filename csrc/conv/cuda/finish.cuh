// Epilogue of the mma.sync binary convolution: a lane holds eight consecutive channels of one pixel
// out of every 32 channels of its warp.
#pragma once

#include "conv/cuda/mma_tables.cuh"

namespace bitgnn::cuda::conv {

constexpr int kLaneChannels = 8;

// Maps weight row `row` to its channel within its 32, so that lane q of a quad ends up with
// channels 8 q to 8 q + 7.
__device__ __forceinline__ int channel_of_row(int row) {
  return (row & ~31) + (row >> 1 & 3) * kLaneChannels + (row >> 3 & 3) * 2 + (row & 1);
}

// A lane's channels in the tile: column + 32 t + {0 .. 7}.
template <class Tile>
struct ConvChannels {
  static constexpr int kWords = Tile::kChannelFragments / 4;
  int column;
  int first, count;         // of the tile
  uint32_t turned[kWords];  // bits to invert
};

// Stores eight consecutive numbers, as vectors if all of them exist and are 16-byte aligned.
template <class T>
__device__ __forceinline__ void store_numbers(T* to, const T (&numbers)[kLaneChannels],
                                              bool vectors, int left) {
  if (vectors && left >= kLaneChannels) {
    constexpr int kVectors = static_cast<int>(sizeof(numbers) / sizeof(int4));
    int4 packed[kVectors];
    memcpy(packed, numbers, sizeof(numbers));
#pragma unroll
    for (int i = 0; i < kVectors; ++i) reinterpret_cast<int4*>(to)[i] = packed[i];
    return;
  }
#pragma unroll
  for (int k = 0; k < kLaneChannels; ++k)
    if (k < left) to[k] = numbers[k];
}

// Eight addends in their memory format.
struct ConvAddend {
  int4 raw[2];

  __device__ __forceinline__ void load(const ConvAddArgs& a, const ConvMmaPlan& plan,
                                       int64_t offset, int channel) {
    raw[0] = raw[1] = make_int4(0, 0, 0, 0);
    if (a.addend == nullptr) return;
    const int64_t left = a.addend_channels - channel;
    const auto* wide = static_cast<const int32_t*>(a.addend) + offset + channel;
    const auto* narrow = static_cast<const int16_t*>(a.addend) + offset + channel;
    if (plan.addend_vectors && left >= kLaneChannels) {
      const auto* from = a.addend_wide ? reinterpret_cast<const int4*>(wide)
                                       : reinterpret_cast<const int4*>(narrow);
      raw[0] = from[0];
      if (a.addend_wide) raw[1] = from[1];
      return;
    }
    int32_t numbers[kLaneChannels];
#pragma unroll
    for (int k = 0; k < kLaneChannels; ++k)
      numbers[k] = k >= left ? 0 : a.addend_wide ? wide[k] : narrow[k];
    if (a.addend_wide) {
      memcpy(raw, numbers, sizeof(numbers));
    } else {
      int16_t halves[kLaneChannels];
#pragma unroll
      for (int k = 0; k < kLaneChannels; ++k) halves[k] = static_cast<int16_t>(numbers[k]);
      memcpy(raw, halves, sizeof(halves));
    }
  }

  __device__ __forceinline__ void add_to(int32_t (&numbers)[kLaneChannels], bool wide) const {
    const int32_t words[kLaneChannels] = {raw[0].x, raw[0].y, raw[0].z, raw[0].w,
                                          raw[1].x, raw[1].y, raw[1].z, raw[1].w};
#pragma unroll
    for (int k = 0; k < kLaneChannels; ++k) {
      const int32_t pair = words[k / 2];
      const int32_t half =
          k % 2 == 0 ? static_cast<int32_t>(static_cast<int16_t>(pair & 0xffff)) : pair >> 16;
      numbers[k] += wide ? words[k] : half;
    }
  }
};

template <class Tile, ConvResult kOutput>
struct ConvFinish {
  static constexpr int kFragments = Tile::kChannelFragments;
  static constexpr int kWords = ConvChannels<Tile>::kWords;
  // Addends are prefetched before the products if they fit in registers.
  static constexpr bool kFetches = kOutput == ConvResult::kSums && Tile::kOwnHalves * kWords <= 2;

  int row[Tile::kOwnHalves];  // of the tile
  int32_t* pooled = nullptr;  // staging for words to be pooled, until their windows are complete
  ConvAddend addend[kFetches ? Tile::kOwnHalves : 1][kWords];

  __device__ __forceinline__ void load_addends(const ConvAddArgs& a, const ConvMmaPlan& plan,
                                               const ConvRowTerms* rows,
                                               const ConvChannels<Tile>& own) {
    if constexpr (kFetches) {
#pragma unroll
      for (int h = 0; h < Tile::kOwnHalves; ++h) {
        const int64_t offset = rows[row[h]].addend;
#pragma unroll
        for (int t = 0; t < kWords; ++t)
          addend[h][t].load(a, plan, offset, own.first + own.column + t * 32);
      }
    }
  }

  // `part` is 2 p - |a| for half h of the warp.
  __device__ __forceinline__ void write(const ConvAddArgs& a, const ConvMmaPlan& plan,
                                        const ConvRowTerms* rows,
                                        const ConvChannelTables<Tile>& tables,
                                        const int32_t* class_sums, const ConvChannels<Tile>& own,
                                        const int32_t (&part)[kFragments][2], int first_pixel,
                                        int h, int lane) const {
    const ConvArgs& c = a.conv;
    const ConvRowTerms terms = rows[row[h]];
    const int64_t pixel = static_cast<int64_t>(first_pixel) + row[h];
    const bool exists = pixel < plan.pixels;
    const int32_t* const sums = class_sums + terms.class_channel + own.column;
    const int quad = lane % 4;
#pragma unroll
    for (int t = 0; t < kWords; ++t) {
      const int4 low = *reinterpret_cast<const int4*>(sums + t * 32);
      const int4 high = *reinterpret_cast<const int4*>(sums + t * 32 + 4);
      const int32_t sum[kLaneChannels] = {low.x,  low.y,  low.z,  low.w,
                                          high.x, high.y, high.z, high.w};
      int32_t v[kLaneChannels];
#pragma unroll
      for (int k = 0; k < kLaneChannels; ++k) v[k] = terms.size + 2 * part[t * 4 + k / 2][k % 2];
      uint32_t bits = 0;
      if constexpr (kOutput == ConvResult::kBits) {
#pragma unroll
        for (int k = 0; k < kLaneChannels; ++k)
          if (v[k] >= sum[k]) bits |= 1u << k;
      } else {
#pragma unroll
        for (int k = 0; k < kLaneChannels; ++k) v[k] -= sum[k];
        const int column = own.column + t * 32;
        const int left = exists ? own.count - column : 0;
        const int64_t at = pixel * c.out_channels + own.first + column;
        if constexpr (kOutput == ConvResult::kValues)
          write_values(c, plan, own.first + column, at, left, v);
        else
          bits = write_sums(a, plan, tables, terms, own.first, column, at, left, h, t, v);
      }
      if constexpr (kOutput != ConvResult::kValues) {
        if (c.out_bits == nullptr) continue;
        bits <<= kLaneChannels * quad;
        bits |= __shfl_xor_sync(kFullWarp, bits, 1);
        bits |= __shfl_xor_sync(kFullWarp, bits, 2);
        const int word = own.column / 32 + t;
        if constexpr (kOutput == ConvResult::kBits) {
          if (pooled != nullptr) {
            if (quad == 0)
              pooled[row[h] * Tile::kChannelWords + word] =
                  static_cast<int32_t>(bits ^ own.turned[t]);
            continue;
          }
        }
        if (quad == 0 && exists && word * 32 < own.count)
          c.out_bits[pixel * plan.out_words + own.first / 32 + word] =
              static_cast<int32_t>(bits ^ own.turned[t]);
      }
    }
  }

  // Writes all halves of a warp that reduces alone.
  template <class Sums>
  __device__ __forceinline__ void write_all(const ConvAddArgs& a, const ConvMmaPlan& plan,
                                            const ConvRowTerms* rows,
                                            const ConvChannelTables<Tile>& tables,
                                            const int32_t* class_sums,
                                            const ConvChannels<Tile>& own, const Sums& sums,
                                            int first_pixel, int lane) const {
#pragma unroll
    for (int h = 0; h < Tile::kHalves; ++h) {
      int32_t part[kFragments][2];
#pragma unroll
      for (int j = 0; j < kFragments; ++j) {
        part[j][0] = sums.part(h, j, 0);
        part[j][1] = sums.part(h, j, 1);
      }
      write(a, plan, rows, tables, class_sums, own, part, first_pixel, h, lane);
    }
  }

 private:
  __device__ __forceinline__ void write_values(const ConvArgs& c, const ConvMmaPlan& plan,
                                               int channel, int64_t at, int left,
                                               const int32_t (&dot)[kLaneChannels]) const {
    if (c.out_int != nullptr) {
      store_numbers(c.out_int + at, dot, plan.vectors, left);
      return;
    }
    float v[kLaneChannels];
#pragma unroll
    for (int k = 0; k < kLaneChannels; ++k)
      v[k] = k < left ? conv_value(c.out_scale, c.bias, channel + k, dot[k]) : 0.0f;
    store_numbers(c.out_float + at, v, plan.vectors, left);
  }

  // Stores the sums of products and addends; returns their bits.
  __device__ __forceinline__ uint32_t write_sums(const ConvAddArgs& a, const ConvMmaPlan& plan,
                                                 const ConvChannelTables<Tile>& tables,
                                                 const ConvRowTerms& terms, int first, int column,
                                                 int64_t at, int left, int h, int t,
                                                 int32_t (&total)[kLaneChannels]) const {
    if constexpr (kFetches) {
      addend[h][t].add_to(total, a.addend_wide);
    } else {
      ConvAddend late;
      late.load(a, plan, terms.addend, first + column);
      late.add_to(total, a.addend_wide);
    }
    if (a.sums != nullptr && a.sums_wide) {
      store_numbers(static_cast<int32_t*>(a.sums) + at, total, plan.vectors, left);
    } else if (a.sums != nullptr) {
      int16_t narrow[kLaneChannels];
#pragma unroll
      for (int k = 0; k < kLaneChannels; ++k)
        narrow[k] = static_cast<int16_t>(min(max(total[k], -32768), 32767));
      store_numbers(static_cast<int16_t*>(a.sums) + at, narrow, plan.vectors, left);
    }
    uint32_t bits = 0;
#pragma unroll
    for (int k = 0; k < kLaneChannels; ++k)
      if (__int2float_rn(total[k]) >= tables.threshold[column + k]) bits |= 1u << k;
    return bits;
  }
};

}  // namespace bitgnn::cuda::conv
