// Scores of one edge for the heads of a tile, by those of its ends or by the bits of both.
#pragma once

#include "core/cuda/common.cuh"
#include "gat/arguments.h"
#include "gat/exponential.h"

namespace bitgnn::cuda::gat {

constexpr int kPartBits = 4;  // features of an entry of a table
constexpr int kPartEntries = 1 << kPartBits;
constexpr int kPartsPerWord = 32 / kPartBits;

// Part of a row's features that a block computes: heads and words of x.
struct Tile {
  int64_t first_head;
  int heads;
  int64_t first_word;
};

// By scores of nodes, or by those that are given.
struct NodeScores {
  static constexpr bool kHasTables = false;

  template <int kHeads>
  __device__ static void compute(const GatArgs& a, const Tile& tile, const uint32_t* /*tables*/,
                                 int64_t row, int64_t edge, int64_t source, float (&s)[kHeads]) {
    const float* of_source = a.source + source * a.source_stride + tile.first_head;
    const float* of_target = a.target + row * a.target_stride + tile.first_head;
    const float* of_edge = a.edge + edge * a.heads + tile.first_head;
#pragma unroll(kHeads <= 8 ? kHeads : 1)
    for (int h = 0; h < kHeads; ++h) {
      if (h >= tile.heads) break;
      float v = 0.0f;
      if (a.source != nullptr) v = __fadd_rn(__ldg(of_source + h), __ldg(of_target + h));
      if (a.edge != nullptr) {
        const float term = __ldg(of_edge + h);
        v = a.source != nullptr ? __fadd_rn(v, term) : term;
      }
      s[h] = leaky(v, a.slope);
    }
  }
};

// By dot products of float rows, of which the lanes read some kilobytes: the next four words of a
// row come from the first-level cache.
struct DotScores {
  static constexpr bool kHasTables = false;

  template <int kHeads>
  __device__ static void compute(const GatArgs& a, const Tile& tile, const uint32_t* /*tables*/,
                                 int64_t row, int64_t edge, int64_t source, float (&s)[kHeads]) {
    const int64_t channels = a.width / a.heads;
    const float* query = a.target + row * a.target_stride + tile.first_head * channels;
    const float* key = a.source + source * a.source_stride + tile.first_head * channels;
    const bool by_four =
        (channels | a.source_stride | a.target_stride) % 4 == 0 &&
        (reinterpret_cast<uintptr_t>(a.source) | reinterpret_cast<uintptr_t>(a.target)) %
                sizeof(float4) ==
            0;
#pragma unroll(kHeads <= 8 ? kHeads : 1)
    for (int h = 0; h < kHeads; ++h, query += channels, key += channels) {
      if (h >= tile.heads) break;
      float v = dot(query, key, channels, by_four);
      if (a.edge != nullptr) v = __fadd_rn(v, __ldg(a.edge + edge * a.heads + tile.first_head + h));
      s[h] = v;
    }
  }

 private:
  __device__ static float dot(const float* query, const float* key, int64_t channels,
                              bool by_four) {
    float sums[kDotParts] = {};
    for (int64_t k = 0; k < channels; k += kDotParts) {
#pragma unroll
      for (int half = 0; half < kDotParts; half += 4) {
        if (k + half >= channels) break;
        if (by_four) {
          const float4 q = __ldg(reinterpret_cast<const float4*>(query + k + half));
          const float4 f = __ldg(reinterpret_cast<const float4*>(key + k + half));
          sums[half] = __fadd_rn(sums[half], __fmul_rn(q.x, f.x));
          sums[half + 1] = __fadd_rn(sums[half + 1], __fmul_rn(q.y, f.y));
          sums[half + 2] = __fadd_rn(sums[half + 2], __fmul_rn(q.z, f.z));
          sums[half + 3] = __fadd_rn(sums[half + 3], __fmul_rn(q.w, f.w));
          continue;
        }
#pragma unroll
        for (int part = half; part < half + 4; ++part)
          if (k + part < channels)
            sums[part] =
                __fadd_rn(sums[part], __fmul_rn(__ldg(query + k + part), __ldg(key + k + part)));
      }
    }
#pragma unroll
    for (int half = kDotParts / 2; half > 0; half /= 2)
#pragma unroll
      for (int part = 0; part < half; ++part) sums[part] = __fadd_rn(sums[part], sums[part + half]);
    return sums[0];
  }
};

// Places of a head's features in tables: `count` parts from `first` on.
struct Parts {
  int64_t first;
  int count;

  __device__ Parts(int64_t channels, int64_t head)
      : first(head * channels / kPartBits),
        count(static_cast<int>(((head + 1) * channels + kPartBits - 1) / kPartBits - first)) {}
};

// Parts of a head at most.
constexpr int64_t most_parts(int64_t channels) {
  return (channels + kPartBits - 1) / kPartBits + 1;
}

// By the bits of both ends, with sums of weights for all values of four bits in shared memory:
// [heads of the tile, most_parts, alone and both, 16].
struct PairScores {
  static constexpr bool kHasTables = true;

  __device__ static void fill(const GatArgs& a, const Tile& tile, uint32_t* tables) {
    const int64_t channels = a.width / a.heads, parts = most_parts(channels);
    const int64_t entries = tile.heads * parts * 2 * kPartEntries;
    for (int64_t i = threadIdx.x; i < entries; i += blockDim.x) {
      const int value = static_cast<int>(i % kPartEntries);
      const bool of_both = i / kPartEntries % 2 != 0;
      const int64_t head = tile.first_head + i / (2 * kPartEntries) / parts;
      const int64_t part = i / (2 * kPartEntries) % parts;
      const int64_t first = (head * channels / kPartBits + part) * kPartBits;
      uint32_t sum = 0;
      for (int bit = 0; bit < kPartBits; ++bit) {
        const int64_t k = first + bit;
        if ((value >> bit & 1) && k >= head * channels && k < (head + 1) * channels)
          sum += static_cast<uint32_t>(of_both ? a.both[k] : a.alone[k]);
      }
      tables[i] = sum;
    }
    __syncthreads();
  }

  template <int kHeads>
  __device__ static void compute(const GatArgs& a, const Tile& tile, const uint32_t* tables,
                                 int64_t row, int64_t /*edge*/, int64_t source,
                                 float (&s)[kHeads]) {
    const int64_t words = words_for(a.width), channels = a.width / a.heads;
    const int32_t* left = a.left + source * words;
    const int32_t* right = a.right + row * words;
#pragma unroll(kHeads <= 8 ? kHeads : 1)
    for (int h = 0; h < kHeads; ++h) {
      if (h >= tile.heads) break;
      const int64_t head = tile.first_head + h;
      const uint32_t sum = tables != nullptr
                               ? looked_up(left, right, Parts(channels, head),
                                           tables + h * most_parts(channels) * 2 * kPartEntries)
                               : added(a, left, right, head * channels, channels);
      s[h] = __fmul_rn(__ldg(a.step + head), __int2float_rn(static_cast<int32_t>(sum)));
    }
  }

 private:
  __device__ static uint32_t looked_up(const int32_t* left, const int32_t* right,
                                       const Parts& parts, const uint32_t* table) {
    uint32_t sum = 0;
    for (int p = 0; p < parts.count; ++p, table += 2 * kPartEntries) {
      const int64_t place = parts.first + p;
      const int shift = static_cast<int>(place % kPartsPerWord) * kPartBits;
      const uint32_t l = static_cast<uint32_t>(__ldg(left + place / kPartsPerWord)) >> shift;
      const uint32_t r = static_cast<uint32_t>(__ldg(right + place / kPartsPerWord)) >> shift;
      sum += table[l & (kPartEntries - 1)] + table[kPartEntries + (l & r & (kPartEntries - 1))];
    }
    return sum;
  }

  // Where tables do not fit.
  __device__ static uint32_t added(const GatArgs& a, const int32_t* left, const int32_t* right,
                                   int64_t first, int64_t channels) {
    uint32_t sum = 0;
    for (int64_t k = first; k < first + channels; ++k) {
      if ((left[k / 32] >> (k % 32) & 1) == 0) continue;
      sum += static_cast<uint32_t>(a.alone[k]);
      if (right[k / 32] >> (k % 32) & 1) sum += static_cast<uint32_t>(a.both[k]);
    }
    return sum;
  }
};

}  // namespace bitgnn::cuda::gat
