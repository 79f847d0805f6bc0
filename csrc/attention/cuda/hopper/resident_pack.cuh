// Prepares a block's resident data for attention on bits: powers, masks, and the keys and values
// from packed planes.
#pragma once

#include "attention/cuda/hopper/resident_tiles.cuh"
#include "attention/cuda/image.cuh"
#include "attention/cuda/limits.cuh"

namespace bitgnn::cuda::attention {

// The rows of a head: pointer to row 0 and row stride.
template <class T>
struct HeadRows {
  const T* first;
  int64_t stride;

  __device__ __forceinline__ const T* row(int i) const { return first + i * stride; }

  // Prefetches the `size` floats of a row into L2.
  __device__ __forceinline__ void prefetch(int i, int64_t size) const {
    for (int64_t at = 0; at < size; at += 128 / sizeof(T))
      asm volatile("prefetch.global.L2 [%0];\n" ::"l"(row(i) + at));
  }

  // Prefetches `count` rows with all threads together. Contiguous, 16-byte aligned rows are fetched
  // in bulk: thousands of single-line prefetches would delay the loads that follow.
  template <bool kAligned>
  __device__ __forceinline__ void prefetch_all(int count, int64_t size) const {
    const int thread = static_cast<int>(threadIdx.x);
    if (kAligned && stride == 64 && size == 64) {
      for (int i = thread / kWarp * kWarp; i < count; i += kResidentThreads)
        if (thread % kWarp == 0)
          asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(row(i)),
                       "r"(min(count - i, kWarp) * static_cast<int>(64 * sizeof(T))));
    } else {
      for (int i = thread; i < count; i += kResidentThreads) prefetch(i, size);
    }
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

// Computes the powers and resets the counters; reads no global memory.
__device__ __forceinline__ void prepare_powers(const ResidentMemory& memory,
                                               const TernaryAttentionArgs& a,
                                               const AttentionPlan& plan) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) *memory.ragged() = 0, *memory.next_tile() = kResidentGroups;
  for (int t = thread; t < kResidentScores; t += kResidentThreads) {
    const double power = exact_exp(-(a.scale * static_cast<double>(t)));
    memory.exact()[t] = power;
    memory.table()[kResidentScores - 1 - t] = static_cast<float>(power * plan.highest);
  }
  __syncthreads();
}

// Computes the mask words of attendable keys and marks the chunks that lack some.
__device__ __forceinline__ void prepare_keys(const ResidentMemory& memory,
                                             const TernaryAttentionArgs& a, int64_t b) {
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t* mask = a.mask != nullptr ? a.mask + b * words_for(a.keys) : nullptr;
  for (int w = thread; w < memory.layout.padded / 32; w += kResidentThreads) {
    const uint32_t word = valid_keys(mask, a.keys, w);
    memory.valid()[w] = word;
    if (word != 0xffffffffu) atomicOr(memory.ragged(), 1u << (w * 32 / kResidentChunk));
  }
  __syncthreads();
}

// Stores keys (p, n) as (p, n, ~p, ~n), to be multiplied with queries (p, n, n, p), and values as p
// and ~n. Masked keys and their values are zeros.
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
      high = make_uint4(~word[0], ~word[1], ~word[2], ~word[3]);
    }
    unsigned char* at = memory.keys() + place_of_key(key);
    *reinterpret_cast<uint4*>(at) = low;
    *reinterpret_cast<uint4*>(at + kCoreBytes) = high;
  }
  constexpr int kWords = kResidentChunk / 32;
  const auto words = static_cast<int>(words_for(a.keys));
#pragma unroll 2
  for (int word = thread % kWords; word < memory.layout.padded / 32; word += kWords) {
#pragma unroll
    for (int i = 0; i < 64 * kWords / kResidentThreads; ++i) {
      const int feature = thread / kWords + i * (kResidentThreads / kWords);
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
}

}  // namespace bitgnn::cuda::attention
