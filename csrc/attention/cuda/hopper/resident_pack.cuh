// Keys and values of attention on bits become the resident bits of a block from packed planes.
#pragma once

#include "attention/cuda/hopper/resident_tiles.cuh"
#include "attention/cuda/image.cuh"
#include "attention/cuda/limits.cuh"

namespace bitgnn::cuda::attention {

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

  // Starts fetching `count` rows, all threads together. Rows without gaps, from an address of 16
  // bytes, go in bulk: thousands of single lines would stand in the way of loads that follow.
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

// The powers, and what counts: nothing of this comes from memory.
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

// Words of the keys that may be attended to, and which chunks lack some.
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

// Keys (p, n) as (p, n, ~p, ~n), which meet queries (p, n, n, p); those that may not be attended to
// as zeros. Values as p and ~n of the keys that may, else zeros.
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
