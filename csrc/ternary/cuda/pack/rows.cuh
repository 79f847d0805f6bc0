// Packs float rows into ternary or boolean bits and counts them: one warp per row for many rows,
// one block per row for few. Bound by reading the floats.
#pragma once

#include <type_traits>

#include "core/cuda/dependent_launch.cuh"
#include "ternary/arguments.h"
#include "ternary/cuda/bits.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kTernaryPackWarps = 8;

// Planes of a packed row: pos and neg (empty for boolean rows), pos alone, or pos and the
// complement of neg (in AND with w both add into one accumulator: popc(w & pos) + popc(w & ~neg)).
enum class PackedPlanes : int { kTernary, kBoolean, kComplement };

// Fills pieces with load(std::bool_constant, i), whose first argument says whether accesses are
// aligned; all loads of a case are issued before the first is used.
template <class T, int kCount, class Load>
__device__ __forceinline__ void load_pieces(typename TernaryLimits<T>::Piece (&piece)[kCount],
                                            bool aligned, const Load& load) {
  if (aligned) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) piece[i] = load(std::true_type(), i);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) piece[i] = load(std::false_type(), i);
  }
}

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
// popc(pos) - popc(neg). `aligned`: rows are has_aligned_rows().
template <class T, int kRowWarps>
__device__ __forceinline__ void pack_ternary_row(const TernaryPackArgs& a, PackedPlanes planes,
                                                 bool aligned, int block) {
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
  const bool one_plane = planes == PackedPlanes::kBoolean;
  const uint32_t inverted = planes == PackedPlanes::kComplement ? 0xffu : 0u;
  auto* pos = reinterpret_cast<uint8_t*>(a.words + row * words * (one_plane ? 1 : 2));
  uint8_t* neg = pos + words * 4;
  int count = 0;
#pragma unroll 1
  for (int64_t column = part * kUnitFloats + lane * kPieceFloats; column < words * 32;
       column += kRowWarps * kUnitFloats * kBatch) {
    typename TernaryLimits<T>::Piece piece[kBatch];
    load_pieces<T>(piece, aligned, [&](auto is_aligned, int i) {
      return piece_of_row<decltype(is_aligned)::value>(from, column + i * kRowWarps * kUnitFloats,
                                                       a.size);
    });
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t at = column + i * kRowWarps * kUnitFloats;
      if (at >= words * 32) break;
      PieceBits bits = limits.bits(piece[i]);
      if (a.boolean) bits.neg = 0;
      pos[at / 8] = static_cast<uint8_t>(PieceBits::byte(bits.pos));
      if (!one_plane) neg[at / 8] = static_cast<uint8_t>(PieceBits::byte(bits.neg) ^ inverted);
      count += inverted != 0 ? __popc(bits.pos) - __popc(bits.neg) : bits.count();
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

template <class T, int kRowWarps>
__global__ void __launch_bounds__(kTernaryPackWarps* kWarp)
    ternary_pack_kernel(const TernaryPackArgs a, PackedPlanes planes, bool aligned) {
  pack_ternary_row<T, kRowWarps>(a, planes, aligned, static_cast<int>(blockIdx.x));
}

}  // namespace bitgnn::cuda::ternary
