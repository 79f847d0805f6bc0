// What tiles of a binary convolution write: a lane holds two neighbouring channels of each fragment
// for a row of 8 pixels' worth of lanes.
#pragma once

#include "bitgnn/cuda/conv_tables.cuh"
#include "bitgnn/cuda/mma_b1.cuh"

namespace bitgnn::cuda {

// A lane's channels in the tile: column + 8 j + {0, 1} for fragment j.
template <class Tile>
struct ConvChannels {
  static constexpr int kWords = Tile::kChannelFragments / 4;
  int column;
  int first, count;         // of the tile
  uint32_t turned[kWords];  // bits turned round
};

// Two numbers next to each other, as a pair where both are there and lie on its boundary.
template <class Pair, class T>
__device__ __forceinline__ void store_pair(T* to, T a, T b, bool pairs, int left) {
  if (pairs && left >= 2) {
    *reinterpret_cast<Pair*>(to) = Pair{a, b};
    return;
  }
  if (left >= 1) to[0] = a;
  if (left >= 2) to[1] = b;
}

template <class Pair, class T>
__device__ __forceinline__ int2 load_pair(const T* from, bool pairs, int64_t left) {
  if (pairs && left >= 2) {
    const Pair both = *reinterpret_cast<const Pair*>(from);
    return make_int2(both.x, both.y);
  }
  return make_int2(left >= 1 ? from[0] : 0, left >= 2 ? from[1] : 0);
}

template <class Tile, ConvResult kOutput>
struct ConvFinish {
  static constexpr int kFragments = Tile::kChannelFragments;
  // Addends that fit registers are fetched before the products.
  static constexpr bool kFetches =
      kOutput == ConvResult::kSums && Tile::kOwnHalves * kFragments <= 8;

  int row[Tile::kOwnHalves];  // of the tile
  int2 addend[kFetches ? Tile::kOwnHalves : 1][kFragments];

  __device__ __forceinline__ static int2 load_addend(const ConvAddArgs& a, const ConvMmaPlan& plan,
                                                     int64_t offset, int channel) {
    if (a.addend == nullptr) return make_int2(0, 0);
    const int64_t left = a.addend_channels - channel;
    if (a.addend_wide)
      return load_pair<int2>(static_cast<const int32_t*>(a.addend) + offset + channel,
                             plan.addend_pairs, left);
    return load_pair<short2>(static_cast<const int16_t*>(a.addend) + offset + channel,
                             plan.addend_pairs, left);
  }

  __device__ __forceinline__ void load_addends(const ConvAddArgs& a, const ConvMmaPlan& plan,
                                               const ConvRowTerms* rows,
                                               const ConvChannels<Tile>& own) {
    if constexpr (kFetches) {
#pragma unroll
      for (int h = 0; h < Tile::kOwnHalves; ++h) {
        const int64_t offset = rows[row[h]].addend;
#pragma unroll
        for (int j = 0; j < kFragments; ++j)
          addend[h][j] = load_addend(a, plan, offset, own.first + own.column + j * kMmaColumns);
      }
    }
  }

  // `part` is 2 p - |a| of half h of the warp.
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
    const int quad = fragment_quad(lane);
#pragma unroll
    for (int t = 0; t < ConvChannels<Tile>::kWords; ++t) {
      uint32_t bits = 0;
#pragma unroll
      for (int f = 0; f < 4; ++f) {
        const int j = t * 4 + f;
        const int2 sum = *reinterpret_cast<const int2*>(sums + j * kMmaColumns);
        const int32_t v0 = terms.size + 2 * part[j][0], v1 = terms.size + 2 * part[j][1];
        if constexpr (kOutput == ConvResult::kBits) {
          if (v0 >= sum.x) bits |= 1u << (f * kMmaColumns);
          if (v1 >= sum.y) bits |= 2u << (f * kMmaColumns);
        } else {
          const int column = own.column + j * kMmaColumns;
          write_values(c, a, plan, tables, own, terms, pixel, exists, column, h, j, v0 - sum.x,
                       v1 - sum.y, &bits, f);
        }
      }
      if constexpr (kOutput != ConvResult::kValues) {
        if (c.out_bits == nullptr) continue;
        bits <<= 2 * quad;
        bits |= __shfl_xor_sync(kFullWarp, bits, 1);
        bits |= __shfl_xor_sync(kFullWarp, bits, 2);
        const int word = (own.column - quad * 2) / 32 + t;
        if (quad == 0 && exists && word * 32 < own.count)
          c.out_bits[pixel * plan.out_words + own.first / 32 + word] =
              static_cast<int32_t>(bits ^ own.turned[t]);
      }
    }
  }

  // All halves of a warp that sums alone.
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
  // Values or sums of two channels, and the bits of the latter.
  __device__ __forceinline__ void write_values(const ConvArgs& c, const ConvAddArgs& a,
                                               const ConvMmaPlan& plan,
                                               const ConvChannelTables<Tile>& tables,
                                               const ConvChannels<Tile>& own,
                                               const ConvRowTerms& terms, int64_t pixel,
                                               bool exists, int column, int h, int j, int32_t dot0,
                                               int32_t dot1, uint32_t* bits, int f) const {
    const int channel = own.first + column;
    const int left = exists ? own.count - column : 0;
    const int64_t at = pixel * c.out_channels + channel;
    if constexpr (kOutput == ConvResult::kValues) {
      if (c.out_int != nullptr) {
        store_pair<int2>(c.out_int + at, dot0, dot1, plan.pairs, left);
      } else {
        const float v0 = left >= 1 ? conv_value(c.out_scale, c.bias, channel, dot0) : 0.0f;
        const float v1 = left >= 2 ? conv_value(c.out_scale, c.bias, channel + 1, dot1) : 0.0f;
        store_pair<float2>(c.out_float + at, v0, v1, plan.pairs, left);
      }
    } else {
      int2 added;
      if constexpr (kFetches)
        added = addend[h][j];
      else
        added = load_addend(a, plan, terms.addend, channel);
      const int32_t t0 = dot0 + added.x, t1 = dot1 + added.y;
      if (a.sums != nullptr && a.sums_wide) {
        store_pair<int2>(static_cast<int32_t*>(a.sums) + at, t0, t1, plan.pairs, left);
      } else if (a.sums != nullptr) {
        const auto narrow = [](int32_t v) {
          return static_cast<int16_t>(min(max(v, -32768), 32767));
        };
        store_pair<short2>(static_cast<int16_t*>(a.sums) + at, narrow(t0), narrow(t1), plan.pairs,
                           left);
      }
      const float2 bound = *reinterpret_cast<const float2*>(tables.threshold + column);
      if (__int2float_rn(t0) >= bound.x) *bits |= 1u << (f * kMmaColumns);
      if (__int2float_rn(t1) >= bound.y) *bits |= 2u << (f * kMmaColumns);
    }
  }
};

}  // namespace bitgnn::cuda
