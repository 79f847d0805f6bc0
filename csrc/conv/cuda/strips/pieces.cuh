// Building blocks of the strip convolutions (strips of 8 x 2 pixels): a warp's products, its
// stores, and its walk over the images.
#pragma once

#include "conv/cuda/outputs.cuh"
#include "conv/cuda/routes.h"
#include "conv/cuda/strips/terms.cuh"
#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/mma_b1.cuh"

namespace bitgnn::cuda::conv {

constexpr int kStripWidth = 8, kStripHeight = 2;  // pixels
constexpr int kStripWarps = 4;

struct ConvStripPlan {
  int height, width, out_height, out_width;
  int padding_top, padding_left;
  int rows, columns;  // strips per image
  int strips;         // in all images
  int out_words;      // per pixel
  bool prefetches;
};

// Outputs of a warp with kFragments fragments of columns.
template <int kFragments>
struct StripTile {
  static_assert(kFragments % 4 == 0 && kFragments <= 8);
  static constexpr int kChannels = kFragments * kMmaColumns;
  static constexpr int kWords = kFragments / 4;
};

// Channel of column n of fragment j: each lane ends up with eight consecutive channels in every 32.
__device__ __forceinline__ int strip_channel(int j, int n) {
  return j / 4 * 32 + n / 2 * 8 + j % 4 * 2 + n % 2;
}

template <int kWords>
struct alignas(kWords * 4) StripWords {
  uint32_t word[kWords];
};

// A lane's weights: for column g of fragment j, the words of tap (i, q).
template <int kWords, int kFragments>
struct StripWeights {
  StripWords<kWords> of[kFragments][3];

  // `pitch`: words per tap; channel_of(j, n) is the output of column n of fragment j.
  template <class ChannelOf>
  __device__ __forceinline__ void load(const int32_t* w, int pitch, int lane,
                                       const ChannelOf& channel_of) {
    const int quad = fragment_quad(lane);
#pragma unroll
    for (int j = 0; j < kFragments; ++j) {
      const int32_t* from = w + (channel_of(j, fragment_group(lane)) * 9 + quad) * pitch;
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        of[j][i] = {};
        if (quad < 3) of[j][i] = *reinterpret_cast<const StripWords<kWords>*>(from + i * 3 * pitch);
      }
    }
  }
};

template <int kFragments>
struct StripSums {
  int32_t sum[kFragments][4];
  int32_t count[4];  // |a|, the same in all columns

  // `rows` are the image rows under the strip's taps.
  template <int kWords, int kStride>
  __device__ __forceinline__ void multiply(const StripWords<kWords> (&rows)[kStride + 3],
                                           const StripWeights<kWords, kFragments>& weights) {
    const uint32_t ones[2] = {~0u, ~0u};
#pragma unroll
    for (int i = 0; i < 3; ++i) {
#pragma unroll
      for (int k = 0; k < kWords; k += 2) {
        const uint32_t a[4] = {rows[i].word[k], rows[i + kStride].word[k], rows[i].word[k + 1],
                               rows[i + kStride].word[k + 1]};
        const bool begins = i == 0 && k == 0;
#pragma unroll
        for (int j = 0; j < kFragments; ++j) {
          const uint32_t b[2] = {weights.of[j][i].word[k], weights.of[j][i].word[k + 1]};
          if (begins)
            mma_and_popc(sum[j], a, b, make_int4(0, 0, 0, 0));
          else
            mma_and_popc(sum[j], a, b);
        }
        if (begins)
          mma_and_popc(count, a, ones, make_int4(0, 0, 0, 0));
        else
          mma_and_popc(count, a, ones);
      }
    }
  }
};

// Loads eight integers from shared memory.
__device__ __forceinline__ void load_eight(int32_t (&v)[8], const int32_t* from) {
  const int4 low = *reinterpret_cast<const int4*>(from);
  const int4 high = *reinterpret_cast<const int4*>(from + 4);
  v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
  v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
}

// Transposes the bytes of a quad: byte i of lane k's result is byte k of lane i's input.
__device__ __forceinline__ uint32_t transpose_bytes(uint32_t v, int quad) {
  v = __byte_perm(v, __shfl_xor_sync(kFullWarp, v, 2), (quad & 2) != 0 ? 0x3276 : 0x5410);
  return __byte_perm(v, __shfl_xor_sync(kFullWarp, v, 1), (quad & 1) != 0 ? 0x3715 : 0x6240);
}

// Loads four consecutive 16-bit numbers.
__device__ __forceinline__ void load_four_halves(int32_t (&pairs)[2], const int16_t* from) {
  const int2 v = *reinterpret_cast<const int2*>(from);
  pairs[0] = v.x, pairs[1] = v.y;
}

template <int kCount>
__device__ __forceinline__ void store_halves(int16_t* to, const int32_t (&v)[kCount]) {
  if constexpr (kCount == 8) {
    *reinterpret_cast<int4*>(to) = make_int4(clamp_halves(v[0], v[1]), clamp_halves(v[2], v[3]),
                                             clamp_halves(v[4], v[5]), clamp_halves(v[6], v[7]));
  } else {
    *reinterpret_cast<int2*>(to) = make_int2(clamp_halves(v[0], v[1]), clamp_halves(v[2], v[3]));
  }
}

// Stores the bits of 16 channels from `channel` on, for the pixel whose words begin at `at`.
__device__ __forceinline__ void store_half_word(int32_t* words, int64_t at, int channel,
                                                uint32_t bits) {
  reinterpret_cast<uint16_t*>(words + at)[channel / 16] = static_cast<uint16_t>(bits);
}

// A lane's position in a strip: pixel g of both rows, and column q of the taps under it.
template <int kWords, int kStride>
struct StripWalk {
  static constexpr int kRows = kStride + 3;  // image rows under the taps of a strip
  static constexpr int kNew = 2 * kStride;   // rows that the strip below adds

  int image, column, row;  // of the strip
  int x;                   // pixel of the result
  int column_class;
  bool reads;  // whether the tap's column is inside
  const StripWords<kWords>* from;

  __device__ __forceinline__ void place(const ConvArgs& c, const ConvStripPlan& p, int lane) {
    const int quad = fragment_quad(lane);
    x = column * kStripWidth + fragment_group(lane);
    const int left = x * kStride - p.padding_left;
    column_class = strip_class(left, p.width);
    reads = quad < 3 && static_cast<unsigned>(left + quad) < static_cast<unsigned>(p.width);
    from = reinterpret_cast<const StripWords<kWords>*>(c.x) +
           (static_cast<int64_t>(image) * p.height * p.width + left + quad);
  }

  __device__ __forceinline__ void begin(int64_t strip, const ConvArgs& c, const ConvStripPlan& p,
                                        int lane) {
    const auto at = static_cast<uint32_t>(strip);
    const uint32_t line = at / static_cast<uint32_t>(p.rows);
    row = static_cast<int>(at - line * static_cast<uint32_t>(p.rows));
    image = static_cast<int>(line / static_cast<uint32_t>(p.columns));
    column = static_cast<int>(line) - image * p.columns;
    place(c, p, lane);
  }

  // Moves to the next strip; returns whether it is the one below.
  __device__ __forceinline__ bool advance(const ConvArgs& c, const ConvStripPlan& p, int lane) {
    if (++row < p.rows) return true;
    row = 0;
    if (++column == p.columns) {
      column = 0;
      ++image;
    }
    place(c, p, lane);
    return false;
  }

  __device__ __forceinline__ StripWords<kWords> load(const ConvStripPlan& p, int y) const {
    StripWords<kWords> words{};
    if (reads && static_cast<unsigned>(y) < static_cast<unsigned>(p.height))
      words = from[static_cast<int64_t>(y) * p.width];
    return words;
  }

  // Image row under the first taps of a strip.
  __device__ __forceinline__ int top(const ConvStripPlan& p, int of_row) const {
    return of_row * kStripHeight * kStride - p.padding_top;
  }

  // Loads the rows of the strip.
  __device__ __forceinline__ void load_all(StripWords<kWords> (&rows)[kRows],
                                           const ConvStripPlan& p) const {
#pragma unroll
    for (int k = 0; k < kRows; ++k) rows[k] = load(p, top(p, row) + k);
  }
  // Loads the rows that the strip below adds, if there is one and it is wanted.
  __device__ __forceinline__ void load_ahead(StripWords<kWords> (&ahead)[kNew],
                                             const ConvStripPlan& p, bool wanted) const {
    const int below = top(p, row + 1) + kRows - kNew;
#pragma unroll
    for (int k = 0; k < kNew; ++k)
      ahead[k] = wanted && row + 1 < p.rows ? load(p, below + k) : StripWords<kWords>{};
  }
  // Moves from the rows of a strip to those of the strip below.
  __device__ __forceinline__ static void shift(StripWords<kWords> (&rows)[kRows],
                                               const StripWords<kWords> (&ahead)[kNew]) {
#pragma unroll
    for (int k = 0; k < kRows; ++k)
      rows[k] = k < kRows - kNew ? rows[k + kNew] : ahead[k - (kRows - kNew)];
  }
};

// The strips that fall to a warp.
struct StripShare {
  int64_t first;
  int left;

  __device__ __forceinline__ explicit StripShare(const ConvStripPlan& p) {
    const int64_t warps = static_cast<int64_t>(gridDim.x) * kStripWarps;
    const int64_t warp =
        static_cast<int64_t>(blockIdx.x) * kStripWarps + static_cast<int>(threadIdx.x) / kWarp;
    first = p.strips * warp / warps;
    left = static_cast<int>(p.strips * (warp + 1) / warps - first);
  }
};

inline ConvStripPlan plan_conv_strips(const ConvArgs& c, bool prefetches) {
  ConvStripPlan p{};
  p.height = static_cast<int>(c.height);
  p.width = static_cast<int>(c.width);
  p.out_height = static_cast<int>(c.out_height);
  p.out_width = static_cast<int>(c.out_width);
  p.padding_top = static_cast<int>(c.padding_top);
  p.padding_left = static_cast<int>(c.padding_left);
  p.rows = static_cast<int>(ceil_div(c.out_height, kStripHeight));
  p.columns = static_cast<int>(ceil_div(c.out_width, kStripWidth));
  p.strips = static_cast<int>(c.images * p.rows * p.columns);
  p.out_words = static_cast<int>(words_for(c.out_channels));
  p.prefetches = prefetches;
  return p;
}

}  // namespace bitgnn::cuda::conv
