// Keeps the k nearest of each query behind a round, a block to a query: sorts what was held and
// what was added, by a bitonic network (Batcher, 1968).
#pragma once

#include "hamming/cuda/nearest.cuh"

namespace bitgnn::cuda::hamming {

constexpr int kSortThreads = 256;
constexpr int64_t kSharedKeys = 4096;

// Sorts 2^n keys in shared or global memory.
__device__ inline void sort_keys(Key* keys, int64_t count) {
  for (int64_t size = 2; size <= count; size *= 2) {
    for (int64_t stride = size / 2; stride > 0; stride /= 2) {
      for (int64_t i = threadIdx.x; i < count / 2; i += kSortThreads) {
        const int64_t low = 2 * i - (i & (stride - 1)), high = low + stride;
        const bool ascends = (low & size) == 0;
        const Key a = keys[low], b = keys[high];
        if ((a > b) == ascends) {
          keys[low] = b;
          keys[high] = a;
        }
      }
      __syncthreads();
    }
  }
}

// Sorts the first `total` of a row, which has room for a power of two. All threads call it.
__device__ inline void sort_row(Key* row, Key* shared, int64_t total) {
  int64_t count = 1;
  while (count < total) count *= 2;
  Key* const keys = count <= kSharedKeys ? shared : row;
  for (int64_t i = threadIdx.x; i < count; i += kSortThreads)
    keys[i] = i < total ? row[i] : kNoCode;
  __syncthreads();
  sort_keys(keys, count);
  if (keys == row) return;
  for (int64_t i = threadIdx.x; i < total; i += kSortThreads) row[i] = keys[i];
  __syncthreads();
}

__device__ inline int limit_of(const Round& r, const Key* row, int64_t held) {
  return held < r.k ? r.size + 1 : distance_of(row[r.k - 1]);
}

// Adds the codes of a round whose row overflowed: as many at a time as there is room for.
__device__ inline int64_t read_again(const Round& r, int64_t query, Key* row, Key* shared) {
  __shared__ int added;
  int64_t held = r.held;
  for (int64_t begin = r.begin; begin < r.end;) {
    const int64_t end = min(r.end, begin + r.capacity - held);
    const int limit = limit_of(r, row, held);
    if (threadIdx.x == 0) added = 0;
    __syncthreads();
    for (int64_t code = begin + threadIdx.x; code < end; code += kSortThreads) {
      const int distance = r.distance(query, code);
      if (distance < limit) row[held + atomicAdd(&added, 1)] = key_of(distance, code);
    }
    __syncthreads();
    const int more = added;
    __syncthreads();
    if (more > 0) sort_row(row, shared, held + more);
    held = min(r.k, held + more);
    begin = end;
  }
  return held;
}

// Sorts rows, sets their limits and empties the counts of added codes; in the last round it writes
// the results.
__global__ void __launch_bounds__(kSortThreads)
    take_nearest(const Round r, int32_t* distances, int64_t* indices) {
  __shared__ Key shared[kSharedKeys];
  const int64_t query = blockIdx.x;
  Key* const row = r.keys + query * r.capacity;
  const int64_t added = r.begin == 0 ? r.end : r.added[query];
  int64_t held = r.held + added;
  if (held > r.capacity) {
    held = read_again(r, query, row, shared);
  } else {
    if (added > 0) sort_row(row, shared, held);
    held = min(r.k, held);
  }
  __syncthreads();  // all have read what thread 0 changes
  if (threadIdx.x == 0) {
    r.added[query] = 0;
    r.limits[query] = limit_of(r, row, held);
  }
  if (distances == nullptr) return;
  for (int64_t i = threadIdx.x; i < r.k; i += kSortThreads) {
    distances[query * r.k + i] = distance_of(row[i]);
    indices[query * r.k + i] = index_of(row[i]);
  }
}

// Counts the bits of the queries, a thread each, and starts with no code.
__global__ void __launch_bounds__(kSortThreads) start_rows(const Round r) {
  const int64_t query = static_cast<int64_t>(blockIdx.x) * kSortThreads + threadIdx.x;
  if (query >= r.num_queries) return;
  int count = 0;
  for (int64_t word = 0; word < r.words; ++word)
    count += __popc(static_cast<uint32_t>(r.queries[query * r.words + word]) & r.valid(word));
  r.counts[query] = count;
  r.limits[query] = r.size + 1;
  r.added[query] = 0;
}

}  // namespace bitgnn::cuda::hamming
