// Packs rows of at most 256 floats into ternary or boolean bits and counts them: a warp handles
// several rows at a time, with four lanes per word. Bound by reading the floats.
#pragma once

#include "ternary/cuda/pack/rows.cuh"

namespace bitgnn::cuda::ternary {

constexpr int64_t kMostNarrowFloats = kWarp * kPieceFloats;
constexpr int kNarrowBatch = 4;  // rows in flight per lane

// packed_row() with 32-bit divisions.
template <class T>
__device__ __forceinline__ const T* narrow_row(const TernaryPackArgs& a, uint32_t row) {
  const T* x = static_cast<const T*>(a.x);
  if (a.sizes[2] == a.rows()) return x + row * a.strides[2];
  const auto inner = static_cast<uint32_t>(a.sizes[2]), middle = static_cast<uint32_t>(a.sizes[1]);
  const uint32_t others = row / inner, outer = others / middle;
  return x + (row - others * inner) * a.strides[2] + (others - outer * middle) * a.strides[1] +
         outer * a.strides[0];
}

// Combines the bytes of both planes held by four adjacent lanes into words: that of `pos` in lanes
// 0 and 1 of the four, that of `neg` in lanes 2 and 3.
__device__ __forceinline__ uint32_t gather_words(uint32_t pos, uint32_t neg, int lane) {
  const uint32_t bytes = pos | neg << 16;
  const uint32_t beside = __shfl_xor_sync(kFullWarp, bytes, 1);
  const uint32_t halves =
      lane % 2 == 0 ? __byte_perm(bytes, beside, 0x6240) : __byte_perm(beside, bytes, 0x6240);
  const uint32_t opposite = __shfl_xor_sync(kFullWarp, halves, 2);
  return lane % 4 < 2 ? __byte_perm(halves, opposite, 0x5410)
                      : __byte_perm(opposite, halves, 0x7632);
}

// row_lanes: lanes per row, 4, 8, 16 or 32; at least four for each word of a row.
template <class T>
__global__ void __launch_bounds__(kTernaryPackWarps* kWarp)
    ternary_pack_narrow_kernel(const TernaryPackArgs a, PackedPlanes planes, bool aligned,
                               int row_lanes) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const auto rows = static_cast<uint32_t>(a.rows());
  const uint32_t step = kWarp / row_lanes;
  const uint32_t first = (blockIdx.x * kTernaryPackWarps + warp) * (kNarrowBatch * step) +
                         static_cast<uint32_t>(lane / row_lanes);
  const int part = lane % row_lanes;
  let_next_start();
  wait_for_previous();
  typename TernaryLimits<T>::Piece piece[kNarrowBatch];
  load_pieces<T>(piece, aligned, [&](auto is_aligned, int i) {
    const uint32_t row = first + i * step;
    return row < rows ? piece_of_row<decltype(is_aligned)::value>(narrow_row<T>(a, row),
                                                                  part * kPieceFloats, a.size)
                      : TernaryLimits<T>::nothing();
  });
  const TernaryLimits<T> limits(load_in_place(a.scale));
  const auto words = static_cast<int>(words_for(a.size));
  const int word = part / 4;
  const bool negative = lane % 4 == 2;
  const bool one_plane = planes == PackedPlanes::kBoolean;
  // True if the lane has a word to store and count.
  const bool stores = word < words && (lane % 4 == 0 || (negative && !one_plane));
  const int row_words = one_plane ? words : 2 * words;
  const int place = negative ? words + word : word;
#pragma unroll
  for (int i = 0; i < kNarrowBatch; ++i) {
    const uint32_t row = first + i * step;
    const PieceBits bits = limits.bits(piece[i]);
    const uint32_t made =
        gather_words(PieceBits::byte(bits.pos), a.boolean ? 0 : PieceBits::byte(bits.neg), lane);
    int count = stores ? __popc(made) : 0;
    for (int across = 2; across < row_lanes; across *= 2)
      count += __shfl_xor_sync(kFullWarp, count, across);
    if (row >= rows) continue;
    if (stores) a.words[static_cast<int64_t>(row) * row_words + place] = static_cast<int32_t>(made);
    if (part == 0) a.counts[row] = count;
  }
}

}  // namespace bitgnn::cuda::ternary
