// Packs the float queries, keys and values of attention on bits straight into a block's resident
// bits, without a separate packing kernel. Bound by reading the floats.
#pragma once

#include "attention/cuda/hopper/resident_pack.cuh"
#include "ternary/cuda/bits.cuh"

namespace bitgnn::cuda::attention {

// Bytes p and n of a piece, in the lower half of the result; the upper half is unspecified. The
// order of features is arbitrary but the same for all pieces.
template <class T>
__device__ __forceinline__ uint32_t
two_bytes(const ternary::TernaryLimits<T>& limits,
          const typename ternary::TernaryLimits<T>::Piece& piece) {
  if constexpr (sizeof(T) == 2) {
    uint32_t above[4], below[4], bits = 0;
    limits.masks(piece, above, below);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      bits |= above[i] & (0x00100001u << i);
      bits |= below[i] & (0x10000100u << i);
    }
    return bits + (bits >> 16);
  } else {
    const ternary::PieceBits bits = limits.bits(piece);
    return bits.pos | bits.neg << 8;
  }
}

// Word of a query with p and n swapped, to be multiplied with the words ~p and ~n of keys.
template <bool kBytes>
__device__ __forceinline__ uint32_t turned_query(const int32_t* words, int quad) {
  if constexpr (kBytes)
    return __byte_perm(static_cast<uint32_t>(*(words + quad)), 0, 0x2301);
  else
    return static_cast<uint32_t>(*(words + (quad ^ 2)));
}

// Loads a piece of a row; kWhole: the row has 64 features and is 16-byte aligned.
template <bool kWhole, bool kAligned, class T>
__device__ __forceinline__ typename ternary::TernaryLimits<T>::Piece row_piece(const T* row,
                                                                               int octet,
                                                                               int64_t size) {
  if constexpr (kWhole)
    return ternary::load_piece(row + octet * 8);
  else
    return ternary::piece_of_row<kAligned>(row, octet * 8, size);
}

// Loads a thread's pieces of a chunk of keys or values; kWhole: all rows exist and have 64 aligned
// features.
template <class T, bool kWhole, bool kAligned>
struct PiecesOfRows {
  const T* row;  // the first one
  int64_t step;  // elements from one to the next
  int distance;  // rows from one to the next
  int left;      // rows left from the first one on
  int64_t size;

  __device__ __forceinline__ typename ternary::TernaryLimits<T>::Piece operator()(int i) const {
    const int octet = static_cast<int>(threadIdx.x) % 8;
    return kWhole || i * distance < left ? row_piece<kWhole, kAligned>(row + i * step, octet, size)
                                         : ternary::TernaryLimits<T>::nothing();
  }
};

// Calls pack(whole, limits, chunk, pieces) for each chunk. first_of(chunk): the thread's first row,
// with the others `distance` apart; whole: all rows exist and may be attended to.
template <class T, bool kAligned, class First, class Pack>
__device__ __forceinline__ void pack_chunks(const ResidentMemory& memory,
                                            const TernaryFloatOperand& x, const HeadRows<T>& rows,
                                            int count, int64_t size, int distance,
                                            const First& first_of, const Pack& pack) {
  const ternary::TernaryLimits<T> limits(ternary::load_in_place(x.scale));
  for (int chunk = 0; chunk < memory.layout.padded / kResidentChunk; ++chunk) {
    const int first = first_of(chunk);
    const T* const row = rows.row(first);
    const int64_t step = rows.stride * distance;
    const bool all = (*memory.ragged() >> chunk & 1) == 0;
    if (kAligned && size == 64 && all)
      pack(std::true_type{}, limits, chunk,
           PiecesOfRows<T, kAligned, kAligned>{row, step, distance, count - first, size});
    else
      pack(std::false_type{}, limits, chunk,
           PiecesOfRows<T, false, kAligned>{row, step, distance, count - first, size});
  }
}

constexpr int kKeyStep = kResidentWarps;  // distance between the keys that a thread packs
static_assert(kKeyStep == 16, "keys of a thread differ in the upper bits of their place");
__device__ __forceinline__ int first_packed_key(int chunk) {
  const int thread = static_cast<int>(threadIdx.x);
  return chunk * kResidentChunk + thread / 8 % 4 * 128 + thread / kWarp;
}
__device__ __forceinline__ int first_packed_value(int chunk) {
  return chunk * kResidentChunk + static_cast<int>(threadIdx.x) / 8 * 8;
}

// Packs a chunk of float keys as alternating bytes p and n of eight features. A thread takes eight
// features of eight keys.
template <class T, bool kWhole, class Pieces>
__device__ __forceinline__ void pack_key_chunk(const ResidentMemory& memory,
                                               const ternary::TernaryLimits<T>& limits, int chunk,
                                               const Pieces& pieces) {
  constexpr int kBatch = 8 / (sizeof(T) / 2);  // loads in flight
  const int first = first_packed_key(chunk);
  unsigned char* to = memory.keys() + place_of_key(first) + threadIdx.x % 8 * 2;
#pragma unroll
  for (int begin = 0; begin < 8; begin += kBatch) {
    typename ternary::TernaryLimits<T>::Piece piece[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) piece[i] = pieces(begin + i);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int later = (begin + i) * kKeyStep;
      const uint32_t bits = two_bytes(limits, piece[i]);
      const uint32_t some = kWhole || may_attend(memory.valid(), first + later) ? 0xffffu : 0u;
      auto* at = reinterpret_cast<uint16_t*>(to + (place_of_key(later) - place_of_key(0)));
      at[0] = static_cast<uint16_t>(bits & some);
      at[kCoreBytes / 2] = static_cast<uint16_t>(~bits & some);
    }
  }
}

// Bits of eight features of eight rows, transposed to one byte per feature.
template <class T>
__device__ __forceinline__ void turn_bits(
    const ternary::TernaryLimits<T>& limits,
    const typename ternary::TernaryLimits<T>::Piece (&piece)[8], uint32_t (&pos)[8],
    uint32_t (&neg)[8]) {
  if constexpr (sizeof(T) == 2) {
    uint32_t p[4] = {}, n[4] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      uint32_t above[4], below[4];
      limits.masks(piece[i], above, below);
      const uint32_t place = 0x00010001u << i;
#pragma unroll
      for (int j = 0; j < 4; ++j) p[j] |= above[j] & place, n[j] |= below[j] & place;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      pos[j] = p[j / 2] >> (j % 2 * 16);
      neg[j] = n[j / 2] >> (j % 2 * 16);
    }
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) pos[j] = neg[j] = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const ternary::PieceBits bits = limits.bits(piece[i]);
#pragma unroll
      for (int j = 0; j < 8; ++j)
        pos[j] |= (bits.pos >> j & 1) << i, neg[j] |= (bits.neg >> j & 1) << i;
    }
  }
}

// Packs a chunk of float values. A thread takes eight features of eight keys.
template <class T, bool kWhole, class Pieces>
__device__ __forceinline__ void pack_value_chunk(const ResidentMemory& memory,
                                                 const ternary::TernaryLimits<T>& limits, int chunk,
                                                 const Pieces& pieces) {
  const int octet = static_cast<int>(threadIdx.x) % 8;
  const int first = first_packed_value(chunk);
  typename ternary::TernaryLimits<T>::Piece piece[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) piece[i] = pieces(i);
  uint32_t pos[8], neg[8];
  turn_bits(limits, piece, pos, neg);
  const uint32_t some = kWhole ? 0xffu : memory.valid()[first / 32] >> (first % 32);
  unsigned char* at = memory.values() + place_of_values(first) + column_of_feature(octet * 8) * 16;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    unsigned char* to = at + column_of_feature(j) * 16;
    to[0] = static_cast<unsigned char>(pos[j] & some);
    to[ResidentShape::kPlaneBytes] = static_cast<unsigned char>(~neg[j] & some);
  }
}

template <class T, bool kAligned>
__device__ __forceinline__ void pack_resident_keys(const ResidentMemory& memory,
                                                   const TernaryFloatOperand& x,
                                                   const HeadRows<T>& k, int count, int64_t size) {
  pack_chunks<T, kAligned>(memory, x, k, count, size, kKeyStep, first_packed_key,
                           [&](auto whole, const auto& limits, int chunk, const auto& pieces) {
                             pack_key_chunk<T, decltype(whole)::value>(memory, limits, chunk,
                                                                       pieces);
                           });
}

template <class T, bool kAligned>
__device__ __forceinline__ void pack_resident_values(const ResidentMemory& memory,
                                                     const TernaryFloatOperand& x,
                                                     const HeadRows<T>& v, int count,
                                                     int64_t size) {
  pack_chunks<T, kAligned>(memory, x, v, count, size, 1, first_packed_value,
                           [&](auto whole, const auto& limits, int chunk, const auto& pieces) {
                             pack_value_chunk<T, decltype(whole)::value>(memory, limits, chunk,
                                                                         pieces);
                           });
}

// Packs a warp's 16 queries contiguously, 16 bytes each, with bytes in the order used for keys.
template <class T, bool kWhole, bool kAligned>
__device__ __forceinline__ void pack_queries(int32_t* scratch, const HeadRows<T>& q,
                                             const ternary::TernaryLimits<T>& limits, int first,
                                             int last, int64_t size) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  typename ternary::TernaryLimits<T>::Piece piece[4];
  const T* row = q.row(first + lane / 8);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    piece[i] = row_piece<kWhole, kAligned>(
        kWhole ? row : q.row(min(first + i * 4 + lane / 8, last)), lane % 8, size);
    row += q.stride * 4;
  }
  auto* at = reinterpret_cast<uint16_t*>(scratch) + lane;
#pragma unroll
  for (int i = 0; i < 4; ++i) at[i * 32] = static_cast<uint16_t>(two_bytes(limits, piece[i]));
  __syncwarp();
}

}  // namespace bitgnn::cuda::attention
