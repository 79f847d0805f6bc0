// Aggregation of packed rows from column slices that stay in shared memory.
//
// A block keeps one slice of the table, up to the size of its shared memory, and counts the items
// of that slice: one item per lane, its neighbours gathered from shared memory through 16-bit
// indices, its counts kept in bit planes. Items of equal size share a warp, so no lane waits. A
// second launch adds the partial counts of each row. Bound by random row reads from shared memory,
// then by the partials.
#pragma once

#include "bspmm/arguments.h"
#include "bspmm/cuda/rows.cuh"
#include "core/check.h"
#include "core/cuda/shared_memory.h"

namespace bitgnn::cuda::bspmm {

constexpr int kItemPlanes = 6;  // bit planes of an item's count
constexpr int kPlaceWords = 8;  // 32 bytes; 4 planes of 4 words fill two places, 6 planes three
constexpr int kGroupCost = 5;   // cost of a group beyond its steps, in steps

// Number of groups whose cost up to their start is below `target`; all threads take part.
__device__ __forceinline__ int find_group(const int32_t* group_steps, int groups, int64_t target) {
  int low = 0, high = groups;  // the answer lies in [low, high]
  while (low < high) {
    const int stride =
        (high - low + static_cast<int>(blockDim.x) - 1) / static_cast<int>(blockDim.x);
    const int probe = low + static_cast<int>(threadIdx.x) * stride;
    const bool below =
        probe < high && group_steps[probe] + static_cast<int64_t>(kGroupCost) * probe < target;
    const int count = __syncthreads_count(below);
    if (count == 0) return low;
    const int last_below = low + (count - 1) * stride;
    low = last_below + 1;
    high = min(high, last_below + stride);
  }
  return low;
}

// Loads words [first_word, first_word + kWords) of the slice's rows, zeros where there are none,
// and a row of zeros.
template <int kWords>
__device__ __forceinline__ void load_slice(const SlicedArgs& a, int slice, int64_t first_word,
                                           uint32_t* table) {
  const int64_t first_row = slice * a.slice_size;
  const int rows = static_cast<int>(min(a.slice_size, a.csr.cols - first_row));
  const int64_t stride = a.csr.x_stride;
  const uint32_t* source = static_cast<const uint32_t*>(a.csr.x) + first_row * stride + first_word;
  const bool whole = first_word + kWords <= words_for(a.csr.features) && stride % kWords == 0 &&
                     reinterpret_cast<uintptr_t>(a.csr.x) % (kWords * sizeof(uint32_t)) == 0;
  if (whole) {
#pragma unroll 4
    for (int i = threadIdx.x; i < rows; i += blockDim.x)
      store_words<kWords>(table + i * kWords, load_words<kWords>(source + i * stride).word);
  } else {
    const int64_t words = words_for(a.csr.features) - first_word;
#pragma unroll 4
    for (int i = threadIdx.x; i < rows; i += blockDim.x) {
      uint32_t x[kWords];
#pragma unroll
      for (int w = 0; w < kWords; ++w) x[w] = w < words ? source[i * stride + w] : 0;
      store_words<kWords>(table + i * kWords, x);
    }
  }
  if (threadIdx.x < kWords) table[a.slice_size * kWords + threadIdx.x] = 0;
}

// Loads the rows of one step's four neighbours.
static_assert(kSliceStepEdges * sizeof(uint16_t) == sizeof(uint2) && kSliceLanes == kWarp);
template <int kWords>
__device__ __forceinline__ void gather_step(uint2 packed, const uint32_t* table,
                                            WordVector<kWords>* x) {
  x[0] = load_words<kWords>(table + (packed.x & 0xffff) * kWords);
  x[1] = load_words<kWords>(table + (packed.x >> 16) * kWords);
  x[2] = load_words<kWords>(table + (packed.y & 0xffff) * kWords);
  x[3] = load_words<kWords>(table + (packed.y >> 16) * kWords);
}

struct Group {
  int first_step, steps;
  int place;  // twice the first place, plus 1 for a large group
};

__device__ __forceinline__ Group load_group(const SlicedArgs& a, int g, int end) {
  if (g >= end) return {0, 0, 0};
  const int first = a.group_steps[g];
  return {first, a.group_steps[g + 1] - first, a.group_places[g]};
}

// Loads this lane's local indices for kAhead steps from `first` on, of which `left` exist.
template <int kAhead>
__device__ __forceinline__ void load_steps(const SlicedArgs& a, int64_t first, int left,
                                           uint2 (&packed)[kAhead]) {
  const uint2* source =
      reinterpret_cast<const uint2*>(a.local_indices) + first * kWarp + threadIdx.x % kWarp;
#pragma unroll
  for (int k = 0; k < kAhead; ++k)
    if (k < left) packed[k] = __ldcs(source + k * kWarp);
}

// Writes `kQuads` runs of four words of every lane's item, items `stride` words apart; two lanes
// together fill the 32-byte sectors of both their items.
template <int kQuads>
__device__ __forceinline__ void store_items(const uint4 (&quad)[kQuads], uint32_t* group,
                                            int stride) {
  const int lane = threadIdx.x % kWarp;
  const bool odd = lane % 2 != 0;
  uint4* even_item = reinterpret_cast<uint4*>(group + (lane - lane % 2) * stride) + (odd ? 1 : 0);
  uint4* odd_item = even_item + stride / 4;
  const auto exchange = [odd](uint32_t first, uint32_t second, uint32_t& even, uint32_t& other) {
    const uint32_t got = __shfl_xor_sync(kFullWarp, odd ? first : second, 1);
    even = odd ? got : first;
    other = odd ? second : got;
  };
#pragma unroll
  for (int q = 0; q < kQuads; q += 2) {
    uint4 even, other;
    exchange(quad[q].x, quad[q + 1].x, even.x, other.x);
    exchange(quad[q].y, quad[q + 1].y, even.y, other.y);
    exchange(quad[q].z, quad[q + 1].z, even.z, other.z);
    exchange(quad[q].w, quad[q + 1].w, even.w, other.w);
    even_item[q] = even;
    odd_item[q] = other;
  }
}

// Stores an item's planes: four of each word, then in large groups the other two of each word.
__device__ __forceinline__ void store_partials(const CountPlanes<4, kItemPlanes>& planes, int place,
                                               uint32_t* partials) {
  const auto& p = planes.plane;
  uint32_t* group = partials + static_cast<int64_t>(place >> 1) * kPlaceWords;
  const bool large = place & 1;
  const int stride = large ? 3 * kPlaceWords : 2 * kPlaceWords;
  uint4 low[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) low[w] = {p[0][w], p[1][w], p[2][w], p[3][w]};
  store_items(low, group, stride);
  if (!large) return;
  const uint4 high[2] = {{p[4][0], p[5][0], p[4][1], p[5][1]},
                         {p[4][2], p[5][2], p[4][3], p[5][3]}};
  store_items(high, group + 2 * kPlaceWords, stride);
}

// Counts the groups first, first + stride, ... below `end`.
template <int kWords, int kAhead>
__device__ __forceinline__ void count_groups(const SlicedArgs& a, int first, int stride, int end,
                                             const uint32_t* table, uint32_t* partials) {
  Group group = load_group(a, first, end), next = load_group(a, first + stride, end);
  uint2 ahead[kAhead];
  load_steps(a, group.first_step, group.steps, ahead);
  for (int g = first; g < end; g += stride) {
    const Group after = load_group(a, g + 2 * stride, end);
    CountPlanes<kWords, kItemPlanes> planes;
    planes.clear();
    for (int step = 0; step < group.steps; step += kAhead) {
      uint2 packed[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) packed[k] = ahead[k];
      // Prefetch while these are counted: in this group, or at the start of the next one.
      const int left = group.steps - step - kAhead;
      load_steps(a, left > 0 ? group.first_step + step + kAhead : next.first_step,
                 left > 0 ? left : next.steps, ahead);
#pragma unroll
      for (int k = 0; k < kAhead; k += 2) {
        if (step + k + 1 < group.steps) {
          WordVector<kWords> x[8];
          gather_step<kWords>(packed[k], table, x);
          gather_step<kWords>(packed[k + 1], table, x + 4);
          planes.add(x);
        } else if (step + k < group.steps) {
          WordVector<kWords> x[4];
          gather_step<kWords>(packed[k], table, x);
          planes.add(x);
        }
      }
    }
    store_partials(planes, group.place, partials);
    group = next;
    next = after;
  }
}

// Partials are [chunk][places][kPlaceWords]; the blocks share chunks times groups evenly.
template <int kWords, int kThreads, int kAhead>
__global__ void __launch_bounds__(kThreads, 1)
    count_slices(const SlicedArgs a, int chunks, uint32_t* partials) {
  extern __shared__ uint32_t table[];
  const int groups = static_cast<int>(a.groups);
  const int64_t total = a.group_steps[groups] + static_cast<int64_t>(kGroupCost) * groups;
  const int64_t all = total * chunks;
  int64_t position = all * blockIdx.x / gridDim.x;
  const int64_t end = all * (blockIdx.x + 1) / gridDim.x;
  const int warp = threadIdx.x / kWarp;
  while (position < end) {
    const int64_t chunk = position / total, base = chunk * total;
    const int last = find_group(a.group_steps, groups, min(end - base, total));
    int g = find_group(a.group_steps, groups, position - base);
    uint32_t* target = partials + chunk * a.places * kPlaceWords;
    int slice = 0;
    while (g < last) {
      while (a.slice_groups[slice + 1] <= g) ++slice;
      const int slice_end = min(last, a.slice_groups[slice + 1]);
      __syncthreads();
      load_slice<kWords>(a, slice, chunk * kWords, table);
      __syncthreads();
      count_groups<kWords, kAhead>(a, g + warp, kThreads / kWarp, slice_end, table, target);
      g = slice_end;
    }
    position = min(base + total, end);
  }
}

constexpr int kSliceThreads = 640;  // as many as the registers allow
constexpr int kStepsAhead = 4;
constexpr int kSliceWords = 4;

// Counts all items into `partials`, scratch memory for SlotRows. A slice must fit in shared memory.
inline cudaError_t count_slice_items(const SlicedArgs& args, const Context& context,
                                     const uint32_t*& partials) {
  const int chunks = static_cast<int>(ceil_div(words_for(args.csr.features), kSliceWords));
  // A block holds a slice, followed by a row of zeros.
  const size_t row_bytes = kSliceWords * sizeof(uint32_t);
  const size_t shared = static_cast<size_t>(args.slice_size + 1) * row_bytes;
  const int64_t largest = context.device.shared_bytes / static_cast<int64_t>(row_bytes) - 1;
  BITGNN_CHECK(args.slice_size <= largest, "bspmm_*_sliced: slice_size must be at most ", largest,
               " on this device, got ", args.slice_size);
  auto* items = static_cast<uint32_t*>(
      context.workspace.take(chunks * args.places * kPlaceWords * sizeof(uint32_t)));
  partials = items;
  if (args.groups == 0) return cudaSuccess;
  const auto kernel = count_slices<kSliceWords, kSliceThreads, kStepsAhead>;
  const cudaError_t status = grant_shared_memory(kernel, static_cast<int64_t>(shared));
  if (status != cudaSuccess) return status;
  kernel<<<context.device.sm_count, kSliceThreads, shared, context.stream>>>(args, chunks, items);
  return cudaGetLastError();
}

// A row's partial counts as a source of aggregate_rows, one word per lane.
struct SlotRows {
  static constexpr int kUnitPlanes = kItemPlanes;
  static constexpr bool kHalved = false;

  SlicedArgs a;
  const uint32_t* partials;
  BoundTable bounds{};

  __device__ __forceinline__ RowExtent extent(int64_t row) const {
    const int begin = a.row_slots[row];
    return {begin, a.row_slots[row + 1] - begin,
            static_cast<int>(row_pointer(a.csr, row + 1) - row_pointer(a.csr, row))};
  }

  template <int kBatch, int kWords, int kPlanes>
  __device__ __forceinline__ void count(CountPlanes<kWords, kPlanes>& planes,
                                        const RowExtent& extent, int first, int end, int stride,
                                        int64_t first_word) const {
    static_assert(kWords == 1, "the planes of one word lie side by side");
    const int word = static_cast<int>(first_word % 4);
    const uint32_t* chunk = partials + first_word / 4 * a.places * kPlaceWords;
    const int32_t* items = a.row_items + extent.begin;
    int item[kBatch];
    load_items(item, items, first, end, stride);
    while (first < end) {
      uint4 low[kBatch];
      uint2 high[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const uint32_t* source = chunk + static_cast<int64_t>(item[k] >> 1) * kPlaceWords;
        low[k] = {0, 0, 0, 0};
        high[k] = {0, 0};
        if (item[k] < 0) continue;
        low[k] = __ldg(reinterpret_cast<const uint4*>(source) + word);
        if (item[k] & 1)
          high[k] = __ldg(reinterpret_cast<const uint2*>(source + 2 * kPlaceWords) + word);
      }
      first += kBatch * stride;
      load_items(item, items, first, end, stride);
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        CountPlanes<1, kItemPlanes> part;
        part.plane[0][0] = low[k].x, part.plane[1][0] = low[k].y, part.plane[2][0] = low[k].z;
        part.plane[3][0] = low[k].w, part.plane[4][0] = high[k].x, part.plane[5][0] = high[k].y;
        planes.add(part);
      }
    }
  }

 private:
  template <int kBatch>
  static __device__ __forceinline__ void load_items(int (&item)[kBatch], const int32_t* items,
                                                    int first, int end, int stride) {
#pragma unroll
    for (int k = 0; k < kBatch; ++k)
      item[k] = first + k * stride < end ? items[first + k * stride] : -1;
  }
};

}  // namespace bitgnn::cuda::bspmm
