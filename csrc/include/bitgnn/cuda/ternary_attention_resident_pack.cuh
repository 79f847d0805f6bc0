// Queries, keys and values of attention on bits become the resident bits of a block: from packed
// planes, or from floats that no other kernel has seen. Bound by reading them.
#pragma once

#include "bitgnn/cuda/ternary_attention_image.cuh"
#include "bitgnn/cuda/ternary_attention_limits.cuh"
#include "bitgnn/cuda/ternary_attention_resident_tiles.cuh"
#include "bitgnn/cuda/ternary_bits.cuh"

namespace bitgnn::cuda {

// Row 0 of a head and the distance of rows.
template <class T>
struct HeadRows {
  const T* first;
  int64_t stride;

  __device__ __forceinline__ const T* row(int i) const { return first + i * stride; }

  // Starts fetching the `size` floats of a row.
  __device__ __forceinline__ void prefetch(int i, int64_t size) const {
    for (int64_t at = 0; at < size; at += 128 / sizeof(T))
      asm volatile("prefetch.global.L2 [%0];\n" ::"l"(row(i) + at));
  }
};

template <class T>
__device__ __forceinline__ HeadRows<T> head_rows(const TernaryFloatOperand& x, int64_t b,
                                                 int64_t h) {
  return {static_cast<const T*>(x.x) + b * x.batch_strides[0] + h * x.batch_strides[1],
          x.row_stride};
}
__device__ __forceinline__ HeadRows<int32_t> head_rows(const TernaryOperand& x, int64_t b,
                                                       int64_t h) {
  return {x.words + b * x.batch_strides[0] + h * x.batch_strides[1], x.row_stride};
}

__device__ __forceinline__ bool may_attend(const uint32_t* valid, int key) {
  return (valid[key / 32] >> (key % 32) & 1) != 0;
}

// Words of the keys that may be attended to, which chunks lack some, and the powers.
__device__ __forceinline__ void prepare_resident(const ResidentMemory& memory,
                                                 const TernaryAttentionArgs& a, int64_t b,
                                                 const AttentionPlan& plan) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) *memory.ragged() = 0, *memory.next_tile() = 0;
  constexpr int kHalf = kResidentThreads / 2;
  if (thread < kHalf)
    make_exact_powers<kResidentScores>(memory.exact(), a.scale, thread, kHalf);
  else if (thread - kHalf < kResidentScores)
    memory.table()[thread - kHalf] =
        static_cast<float>(exp2(plan.step * (thread - kHalf) - plan.base));
  __syncthreads();
  const int32_t* mask = a.mask != nullptr ? a.mask + b * words_for(a.keys) : nullptr;
  for (int w = thread; w < memory.layout.padded / 32; w += kResidentThreads) {
    const uint32_t word = valid_keys(mask, a.keys, w);
    memory.valid()[w] = word;
    if (word != 0xffffffffu) atomicOr(memory.ragged(), 1u << (w * 32 / kResidentChunk));
  }
  __syncthreads();
}

// Keys (p, n) as (p, n, ~n, ~p), those that may not be attended to as zeros; values as p and ~n of
// the keys that may, else zeros.
__device__ __forceinline__ void place_resident(const ResidentMemory& memory,
                                               const TernaryAttentionArgs& a, int64_t b, int64_t kv,
                                               bool vector) {
  const int thread = static_cast<int>(threadIdx.x);
  const uint32_t* valid = memory.valid();
  const HeadRows<int32_t> k = head_rows(a.k, b, kv), v = head_rows(a.v, b, kv);
#pragma unroll 4
  for (int key = thread; key < memory.layout.padded; key += kResidentThreads) {
    uint4 low{}, high{};
    if (may_attend(valid, key)) {
      uint32_t word[4];
      load_words(word, k.row(key), vector);
      low = make_uint4(word[0], word[1], word[2], word[3]);
      high = make_uint4(~word[2], ~word[3], ~word[0], ~word[1]);
    }
    unsigned char* at = memory.keys() + place_of_key(key);
    *reinterpret_cast<uint4*>(at) = low;
    *reinterpret_cast<uint4*>(at + kCoreBytes) = high;
  }
  const auto words = static_cast<int>(words_for(a.keys));
  const int all = memory.layout.padded / 32;
#pragma unroll 4
  for (int item = thread; item < all * 64; item += kResidentThreads) {
    const int word = item % all, feature = item / all;
    uint32_t p = 0, n = 0;
    if (feature < a.size && word < words) {
      p = static_cast<uint32_t>(*(v.row(feature) + word));
      n = static_cast<uint32_t>(*(v.row(feature) + words + word));
    }
    unsigned char* at =
        memory.values() + place_of_values(word * 32) + column_of_feature(feature) * 16;
    *reinterpret_cast<uint32_t*>(at) = p & valid[word];
    *reinterpret_cast<uint32_t*>(at + ResidentShape::kPlaneBytes) = ~n & valid[word];
  }
}

// The same keys from floats. A thread takes eight features of a key.
template <class T, bool kAligned>
__device__ __forceinline__ void pack_resident_keys(const ResidentMemory& memory,
                                                   const HeadRows<T>& k, const float* scale,
                                                   int count, int64_t size) {
  constexpr int kBatch = 8 / (sizeof(T) / 2);  // loads in flight
  constexpr int kStep = kResidentThreads / 8;
  const TernaryLimits<T> limits(load_in_place(scale));
  const int octet = static_cast<int>(threadIdx.x) % 8;
  for (int first = static_cast<int>(threadIdx.x) / 8; first < memory.layout.padded;
       first += kBatch * kStep) {
    const bool whole = (*memory.ragged() >> (first / kResidentChunk) & 1) == 0;
    unsigned char* first_place = memory.keys() + place_of_key(first) + octet;
    typename TernaryLimits<T>::Piece piece[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int key = first + i * kStep;
      piece[i] = key < count ? piece_of_row<kAligned>(k.row(key), octet * 8, size)
                             : TernaryLimits<T>::nothing();
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int key = first + i * kStep;
      if (key >= memory.layout.padded) break;
      const PieceBits bits = limits.bits(piece[i]);
      const uint32_t p = PieceBits::byte(bits.pos), n = PieceBits::byte(bits.neg);
      const uint32_t some = whole || may_attend(memory.valid(), key) ? 0xffu : 0u;
      // 64 keys on lie the lane's next two words, behind which the next lane's begin.
      unsigned char* at = first_place + i % 2 * (kStep * 16) + i / 2 * 32;
      at[0] = static_cast<unsigned char>(p & some);
      at[8] = static_cast<unsigned char>(n & some);
      at[kCoreBytes] = static_cast<unsigned char>(~n & some);
      at[kCoreBytes + 8] = static_cast<unsigned char>(~p & some);
    }
  }
}

// Bits of eight features of eight rows: a byte a feature.
template <class T>
__device__ __forceinline__ void turn_bits(const TernaryLimits<T>& limits,
                                          const typename TernaryLimits<T>::Piece (&piece)[8],
                                          uint32_t (&pos)[8], uint32_t (&neg)[8]) {
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
      const PieceBits bits = limits.bits(piece[i]);
#pragma unroll
      for (int j = 0; j < 8; ++j)
        pos[j] |= (bits.pos >> j & 1) << i, neg[j] |= (bits.neg >> j & 1) << i;
    }
  }
}

// The same values from floats. A thread takes eight features of eight keys.
template <class T, bool kAligned>
__device__ __forceinline__ void pack_resident_values(const ResidentMemory& memory,
                                                     const HeadRows<T>& v, const float* scale,
                                                     int count, int64_t size) {
  const TernaryLimits<T> limits(load_in_place(scale));
  const int octet = static_cast<int>(threadIdx.x) % 8;
  for (int first = static_cast<int>(threadIdx.x) / 8 * 8; first < memory.layout.padded;
       first += kResidentThreads) {
    typename TernaryLimits<T>::Piece piece[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      piece[i] = first + i < count ? piece_of_row<kAligned>(v.row(first + i), octet * 8, size)
                                   : TernaryLimits<T>::nothing();
    uint32_t pos[8], neg[8];
    turn_bits(limits, piece, pos, neg);
    const uint32_t some = memory.valid()[first / 32] >> (first % 32);
    unsigned char* at = memory.values() + place_of_values(first);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      unsigned char* to = at + column_of_feature(octet * 8 + j) * 16;
      to[0] = static_cast<unsigned char>(pos[j] & some);
      to[ResidentShape::kPlaneBytes] = static_cast<unsigned char>(~neg[j] & some);
    }
  }
}

// Planes p and n of the 16 queries of a warp behind each other, 16 bytes a query.
template <class T, bool kAligned>
__device__ __forceinline__ void pack_queries(int32_t* scratch, const HeadRows<T>& q,
                                             const TernaryLimits<T>& limits, int first, int last,
                                             int64_t size) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  typename TernaryLimits<T>::Piece piece[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    piece[i] =
        piece_of_row<kAligned>(q.row(min(first + i * 4 + lane / 8, last)), lane % 8 * 8, size);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const PieceBits bits = limits.bits(piece[i]);
    auto* at = reinterpret_cast<unsigned char*>(scratch) + (i * 4 + lane / 8) * 16 + lane % 8;
    at[0] = static_cast<unsigned char>(PieceBits::byte(bits.pos));
    at[8] = static_cast<unsigned char>(PieceBits::byte(bits.neg));
  }
  __syncwarp();
}

}  // namespace bitgnn::cuda
