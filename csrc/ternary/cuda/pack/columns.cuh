// Packs matrices of floats into ternary bits along their rows: bit planes and counts per feature.
// A thread makes the words of eight features of 32 rows, a block those of 64 features over the
// whole length. Bound by reading the floats.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "ternary/arguments.h"
#include "ternary/cuda/pack/rows.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kColumnFeatures = 64;  // per block
constexpr int kColumnLanes = kColumnFeatures / kPieceFloats;
constexpr int kColumnWords = kWarp / kColumnLanes;          // per feature, made by a warp at a time
constexpr int kColumnLeastWarps = kColumnFeatures / kWarp;  // a thread counts one feature's bits
constexpr int kColumnMostWarps = 16;

// Builds the words of eight features from 32 rows, added one row at a time.
template <class T>
struct ColumnWords {
  uint32_t pos[kPieceFloats] = {}, neg[kPieceFloats] = {};

  __device__ __forceinline__ void add(const TernaryLimits<T>& limits,
                                      const typename TernaryLimits<T>::Piece& piece, int row) {
    const PieceBits bits = limits.bits(piece);
    const uint32_t above = PieceBits::byte(bits.pos), below = PieceBits::byte(bits.neg);
#pragma unroll
    for (int f = 0; f < kPieceFloats; ++f) {
      pos[f] |= (above >> f & 1u) << row;
      neg[f] |= (below >> f & 1u) << row;
    }
  }
  __device__ __forceinline__ uint32_t word(int f, bool negative) const {
    return negative ? neg[f] : pos[f];
  }
};

// For 16-bit floats, masks of two features share a word: one instruction takes a row's bit of both.
template <class T>
struct HalfColumnWords {
  uint32_t pos[2][kPieceFloats / 2] = {}, neg[2][kPieceFloats / 2] = {};  // rows 0-15, rows 16-31

  __device__ __forceinline__ void add(const TernaryLimits<T>& limits, const uint4& piece, int row) {
    uint32_t above[4], below[4];
    limits.masks(piece, above, below);
    const uint32_t place = 0x00010001u << (row % 16);
#pragma unroll
    for (int i = 0; i < kPieceFloats / 2; ++i) {
      pos[row / 16][i] |= above[i] & place;
      neg[row / 16][i] |= below[i] & place;
    }
  }
  __device__ __forceinline__ uint32_t word(int f, bool negative) const {
    const auto& planes = negative ? neg : pos;
    return __byte_perm(planes[0][f / 2], planes[1][f / 2], f % 2 == 0 ? 0x5410 : 0x7632);
  }
};
template <>
struct ColumnWords<__half> : HalfColumnWords<__half> {};
template <>
struct ColumnWords<__nv_bfloat16> : HalfColumnWords<__nv_bfloat16> {};

template <class T>
__global__ void __launch_bounds__(kColumnMostWarps* kWarp)
    ternary_pack_columns_kernel(const TernaryColumnPackArgs a, bool aligned) {
  constexpr int kBatch = sizeof(T) == 4 ? 4 : 8;  // loads in flight
  constexpr int kPitch = kColumnMostWarps * kColumnWords + 1;
  __shared__ uint32_t staged[kColumnFeatures][kPitch];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const auto groups = static_cast<int>(ceil_div(a.features, kColumnFeatures));
  const int64_t matrix = static_cast<int64_t>(blockIdx.x) / groups;
  const int64_t first_feature =
      static_cast<int64_t>(static_cast<int>(blockIdx.x) % groups) * kColumnFeatures;
  const auto features =
      static_cast<int>(min(static_cast<int64_t>(kColumnFeatures), a.features - first_feature));
  let_next_start();
  wait_for_previous();
  const TernaryLimits<T> limits(load_in_place(a.scale));
  const T* x = static_cast<const T*>(a.x) + matrix / a.batches[1] * a.batch_strides[0] +
               matrix % a.batches[1] * a.batch_strides[1];
  const int64_t words = words_for(a.length);
  const int64_t first_out = matrix * a.features + first_feature;
  const int64_t column = first_feature + lane % kColumnLanes * kPieceFloats;
  const int block_words = warps * kColumnWords;
  const auto own_feature = static_cast<int>(threadIdx.x);
  int count = 0;  // set bits of own_feature
#pragma unroll 1
  for (int64_t first_word = 0; first_word < words; first_word += block_words) {
    const int own_word = warp * kColumnWords + lane / kColumnLanes;
    const int64_t first_row = (first_word + own_word) * 32;
    ColumnWords<T> made;
#pragma unroll
    for (int part = 0; part < 32; part += kBatch) {
      typename TernaryLimits<T>::Piece piece[kBatch];
      load_pieces<T>(piece, aligned, [&](auto is_aligned, int i) {
        const int64_t row = first_row + part + i;
        return row < a.length ? piece_of_row<decltype(is_aligned)::value>(x + row * a.row_stride,
                                                                          column, a.features)
                              : TernaryLimits<T>::nothing();
      });
#pragma unroll
      for (int i = 0; i < kBatch; ++i) made.add(limits, piece[i], part + i);
    }
    const auto here = static_cast<int>(min(static_cast<int64_t>(block_words), words - first_word));
#pragma unroll
    for (int plane = 0; plane < 2; ++plane) {
      __syncthreads();
#pragma unroll
      for (int f = 0; f < kPieceFloats; ++f)
        staged[lane % kColumnLanes * kPieceFloats + f][own_word] = made.word(f, plane == 1);
      __syncthreads();
      for (int f = warp; f < features; f += warps) {
        int32_t* to = a.words + ((first_out + f) * 2 + plane) * words + first_word;
        for (int k = lane; k < here; k += kWarp) to[k] = static_cast<int32_t>(staged[f][k]);
      }
      if (own_feature < features) {
        for (int k = 0; k < here; ++k) count += __popc(staged[own_feature][k]);
      }
    }
  }
  if (own_feature < features) a.counts[first_out + own_feature] = count;
}

}  // namespace bitgnn::cuda::ternary
