// The nearest codes of each query so far, and what kernels share to add to them.
#pragma once

#include "core/cuda/common.cuh"
#include "hamming/arguments.h"

namespace bitgnn::cuda::hamming {

// A code as a key: by distance, then by index.
using Key = unsigned long long;
constexpr int kIndexBits = 40;
constexpr Key kNoCode = ~Key{0};

__host__ __device__ constexpr Key key_of(int distance, int64_t index) {
  return static_cast<Key>(distance) << kIndexBits | static_cast<Key>(index);
}
__host__ __device__ constexpr int distance_of(Key key) {
  return static_cast<int>(key >> kIndexBits);
}
__host__ __device__ constexpr int64_t index_of(Key key) {
  return static_cast<int64_t>(key & ((Key{1} << kIndexBits) - 1));
}

// One round of a group of queries: codes [begin, end) are added to the nearest of all codes before.
//
// The row of a query holds the nearest so far, sorted, and behind them the round's codes nearer
// than the limit, in any order. Where these are more than there is room for, the rest is counted
// but lost, and take_nearest() reads the codes of the round once more.
struct Round {
  const int32_t* queries;  // [num_queries, words]
  const int32_t* codes;    // [num_codes, words]
  int64_t num_queries;
  int64_t words;
  uint32_t mask;  // of the last word
  int size;
  int64_t k;
  int64_t begin, end;
  int64_t held;      // codes in each row from earlier rounds: the k nearest, or all
  Key* keys;         // [num_queries, capacity]
  int64_t capacity;  // a power of two, more than twice k unless it holds all codes
  int32_t* added;    // [num_queries] codes that this round adds
  int32_t* limits;   // [num_queries] distance of the k-th, size + 1 while there are fewer
  int32_t* counts;   // [num_queries] set bits of the queries

  // All bits of a word but padding bits.
  __device__ __forceinline__ uint32_t valid(int64_t word) const {
    return word + 1 == words ? mask : 0xffffffffu;
  }

  __device__ __forceinline__ int distance(int64_t query, int64_t code) const {
    int count = 0;
    for (int64_t word = 0; word < words; ++word) {
      const int32_t bits = queries[query * words + word] ^ codes[code * words + word];
      count += __popc(static_cast<uint32_t>(bits) & valid(word));
    }
    return count;
  }

  // Adds a code nearer than the limit. In the first round all codes are, and have their places.
  __device__ __forceinline__ void add(int64_t query, int distance, int64_t code) const {
    if (distance >= limits[query]) return;
    const int64_t place = begin == 0 ? code : held + atomicAdd(added + query, 1);
    if (place < capacity) keys[query * capacity + place] = key_of(distance, code);
  }
};

}  // namespace bitgnn::cuda::hamming
