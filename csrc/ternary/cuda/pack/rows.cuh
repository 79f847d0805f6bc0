// Packs float rows into ternary or boolean bits and counts them: one warp per row for many rows,
// one block per row for few. Bound by reading the floats.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "ternary/arguments.h"
#include "ternary/cuda/bits.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kTernaryPackWarps = 8;

// Planes of a packed row: pos and neg (empty for boolean rows), pos alone, or pos and the
// complement of neg (in AND with w both add into one accumulator: popc(w & pos) + popc(w & ~neg)).
enum class PackedPlanes : int { kTernary, kBoolean, kComplement };

template <class T>
__device__ __forceinline__ const T* packed_row(const TernaryPackArgs& a, int64_t row) {
  const T* x = static_cast<const T*>(a.x);
  if (a.sizes[2] == a.rows()) return x + row * a.strides[2];
  const int64_t last = row % a.sizes[2];
  const int64_t others = row / a.sizes[2];
  return x + last * a.strides[2] + others % a.sizes[1] * a.strides[1] +
         others / a.sizes[1] * a.strides[0];
}

// True if each row is packed by its own block, which keeps more loads in flight when rows are few.
inline bool has_few_rows(int64_t rows, const Context& context) {
  constexpr int kFullRows = 8;  // per SM
  return rows <= kFullRows * context.device.sm_count;
}

// Packs one row with kRowWarps (1 or kTernaryPackWarps) warps. With kComplement, `counts` takes
// popc(pos) - popc(neg).
template <class T, PackedPlanes kPlanes, int kRowWarps, bool kAligned>
__device__ __forceinline__ void pack_ternary_row(const TernaryPackArgs& a, int block) {
  constexpr int kUnitFloats = kWarp * kPieceFloats;
  constexpr int kBatch = 4;
  __shared__ int32_t partial[kTernaryPackWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t row = kRowWarps == 1 ? static_cast<int64_t>(block) * kTernaryPackWarps + warp
                                     : static_cast<int64_t>(block);
  const int part = kRowWarps == 1 ? 0 : warp;
  let_next_start();
  wait_for_previous();
  if (row >= a.rows()) return;
  const TernaryLimits<T> limits(load_in_place(a.scale));
  const T* from = packed_row<T>(a, row);
  const int64_t words = words_for(a.size);
  auto* pos = reinterpret_cast<uint8_t*>(a.words +
                                         row * words * (kPlanes == PackedPlanes::kBoolean ? 1 : 2));
  uint8_t* neg = pos + words * 4;
  int count = 0;
#pragma unroll 1
  for (int64_t column = part * kUnitFloats + lane * kPieceFloats; column < words * 32;
       column += kRowWarps * kUnitFloats * kBatch) {
    typename TernaryLimits<T>::Piece piece[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      piece[i] = piece_of_row<kAligned>(from, column + i * kRowWarps * kUnitFloats, a.size);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t at = column + i * kRowWarps * kUnitFloats;
      if (at >= words * 32) break;
      PieceBits bits = limits.bits(piece[i]);
      if (a.boolean) bits.neg = 0;
      pos[at / 8] = static_cast<uint8_t>(PieceBits::byte(bits.pos));
      if constexpr (kPlanes == PackedPlanes::kBoolean) {
        count += __popc(bits.pos);
      } else if constexpr (kPlanes == PackedPlanes::kTernary) {
        neg[at / 8] = static_cast<uint8_t>(PieceBits::byte(bits.neg));
        count += bits.count();
      } else {
        neg[at / 8] = static_cast<uint8_t>(~PieceBits::byte(bits.neg));
        count += __popc(bits.pos) - __popc(bits.neg);
      }
    }
  }
  count = __reduce_add_sync(kFullWarp, count);
  if constexpr (kRowWarps == 1) {
    if (lane == 0) a.counts[row] = count;
  } else {
    if (lane == 0) partial[warp] = count;
    __syncthreads();
    if (threadIdx.x == 0) {
      int total = 0;
#pragma unroll
      for (int i = 0; i < kTernaryPackWarps; ++i) total += partial[i];
      a.counts[row] = total;
    }
  }
}

template <class T, PackedPlanes kPlanes, int kRowWarps, bool kAligned>
__global__ void __launch_bounds__(kTernaryPackWarps* kWarp)
    ternary_pack_kernel(const TernaryPackArgs a) {
  pack_ternary_row<T, kPlanes, kRowWarps, kAligned>(a, static_cast<int>(blockIdx.x));
}

}  // namespace bitgnn::cuda::ternary
