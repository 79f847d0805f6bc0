// Packs many float rows into ternary planes, pos and the complement of neg: one warp per row, with
// the next loads always in flight and whole-word stores. Bound by reading the floats.
#pragma once

#include "ternary/cuda/hopper/weight_counts.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kStreamBlocks = 4;  // per SM: as many as fit
constexpr int kStreamPieces = 8;  // in flight per lane with 16-bit floats, half as many with 32-bit

// Transposes bytes among four adjacent lanes that hold four pieces each: lane 4 m + i ends up with
// the bytes of piece i.
__device__ __forceinline__ uint32_t exchange_bytes(uint32_t x, int lane) {
  uint32_t y = __shfl_xor_sync(kFullWarp, x, 2);
  x = __byte_perm(x, y, (lane & 2) == 0 ? 0x5410 : 0x3276);
  y = __shfl_xor_sync(kFullWarp, x, 1);
  return __byte_perm(x, y, (lane & 1) == 0 ? 0x6240 : 0x3715);
}

// Takes rows at one stride, made of whole pieces at 16-byte aligned addresses.
template <class T>
__global__ void __launch_bounds__(kTernaryPackWarps* kWarp, kStreamBlocks)
    ternary_stream_kernel(const TernaryPackArgs a, const CountedWeights weights) {
  if (static_cast<int>(blockIdx.x) >= weights.row_blocks) {
    weights.count();
    return;
  }
  constexpr int kHeld = sizeof(T) == 4 ? kStreamPieces / 2 : kStreamPieces;
  constexpr int kStep = 4 * kWarp * kPieceFloats;  // floats that become 32 words of a plane
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int stride = weights.row_blocks * kTernaryPackWarps;
  // In this order, because the next kernel may read weights as soon as it starts.
  wait_for_previous();
  let_next_start();
  const TernaryLimits<T> limits(load_in_place(a.scale));
  const auto rows = static_cast<int>(a.rows()), size = static_cast<int>(a.size);
  const auto words = static_cast<int>(words_for(a.size));
  int row =
      static_cast<int>(blockIdx.x) * kTernaryPackWarps + static_cast<int>(threadIdx.x) / kWarp;
  // Row and lane's column of the next load.
  int ahead_row = row, ahead = lane * kPieceFloats;
  const T* from = static_cast<const T*>(a.x) + ahead_row * a.strides[2];
  typename TernaryLimits<T>::Piece piece[kHeld];
  const auto load = [&](int slot) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = ahead + i * (kWarp * kPieceFloats);
      piece[slot + i] = TernaryLimits<T>::nothing();
      if (at < size && ahead_row < rows) piece[slot + i] = load_piece(from + at);
    }
    ahead += kStep;
    if (ahead - lane * kPieceFloats >= size) {
      ahead = lane * kPieceFloats;
      ahead_row += stride;
      from = static_cast<const T*>(a.x) + ahead_row * a.strides[2];
    }
  };
#pragma unroll
  for (int slot = 0; slot < kHeld; slot += 4) load(slot);
  int word = 0, count = 0;
  while (row < rows) {
#pragma unroll
    for (int slot = 0; slot < kHeld; slot += 4) {
      uint32_t pos = 0, neg = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const PieceBits bits = limits.bits(piece[slot + i]);
        pos |= PieceBits::byte(bits.pos) << (8 * i);
        neg |= PieceBits::byte(bits.neg) << (8 * i);
      }
      load(slot);
      if (row >= rows) break;
      if (a.boolean) neg = 0;
      count += __popc(pos) - __popc(neg);
      pos = exchange_bytes(pos, lane);
      neg = exchange_bytes(neg, lane);
      const int at = word + lane % 4 * (kWarp / 4) + lane / 4;
      if (at < words) {
        uint32_t* to = reinterpret_cast<uint32_t*>(a.words) + static_cast<int64_t>(row) * 2 * words;
        to[at] = pos;
        to[words + at] = ~neg;
      }
      word += kWarp;
      if (word >= words) {
        count = __reduce_add_sync(kFullWarp, count);
        if (lane == 0) a.counts[row] = count;
        row += stride;
        word = count = 0;
      }
    }
  }
}

}  // namespace bitgnn::cuda::ternary
