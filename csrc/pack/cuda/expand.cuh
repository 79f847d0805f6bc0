// Expands packed rows to floats, bound by the write; also the walk over flat rows that joins share.
#pragma once

#include <algorithm>
#include <type_traits>

#include "core/cuda/common.cuh"

namespace bitgnn::cuda::pack {

constexpr int kFlatThreads = 256;
constexpr int kFlatItems = 4;    // in flight per thread
constexpr int kFlatBlocks = 16;  // per multiprocessor, several rounds of resident blocks

// A number of elements as whole rows and a remainder, so that positions advance without divisions.
struct FlatStep {
  int64_t rows;
  uint32_t columns;
};

// Rows of `size` elements, walked in runs of kVector adjacent elements per thread.
struct FlatRange {
  int64_t total;   // elements
  uint32_t size;   // elements per row
  FlatStep inner;  // from one item of a thread to its next
  FlatStep outer;  // from one turn of the grid to the next
};

struct FlatPosition {
  int64_t row;
  uint32_t column;

  __device__ __forceinline__ FlatPosition(int64_t element, uint32_t size) {
    if (element >> 32 == 0)  // the common case; much faster
      row = static_cast<uint32_t>(element) / size;
    else
      row = element / size;
    column = static_cast<uint32_t>(element - row * size);
  }
  __device__ __forceinline__ void advance(const FlatStep& step, uint32_t size) {
    row += step.rows;
    column += step.columns;
    if (column >= size) {
      column -= size;
      ++row;
    }
  }
};

// Calls store(element, load(element, row, column)) for every kVector-th element, several in flight.
template <int kVector, class Load, class Store>
__device__ __forceinline__ void for_flat(const FlatRange& range, const Load& load,
                                         const Store& store) {
  using Item = decltype(load(int64_t{}, int64_t{}, uint32_t{}));
  constexpr int64_t kStep = kFlatThreads * kVector;
  const int64_t turn = gridDim.x * (kStep * kFlatItems);
  int64_t i = blockIdx.x * (kStep * kFlatItems) + threadIdx.x * kVector;
  FlatPosition start(i, range.size);
  for (; i < range.total; i += turn) {
    FlatPosition at = start;
    if (i + (kFlatItems - 1) * kStep < range.total) {
      Item item[kFlatItems];
#pragma unroll
      for (int j = 0; j < kFlatItems; ++j) {
        item[j] = load(i + j * kStep, at.row, at.column);
        at.advance(range.inner, range.size);
      }
#pragma unroll
      for (int j = 0; j < kFlatItems; ++j) store(i + j * kStep, item[j]);
    } else {
      for (int64_t element = i; element < range.total; element += kStep) {
        store(element, load(element, at.row, at.column));
        at.advance(range.inner, range.size);
      }
    }
    start.advance(range.outer, range.size);
  }
}

// The walk over `rows` rows of `size` < 2^31 elements, and the number of blocks it takes.
inline FlatRange flat_range(int64_t rows, int64_t size, int vector, const Context& context,
                            unsigned& blocks) {
  const int64_t total = rows * size, step = int64_t{kFlatThreads} * vector;
  const int64_t most = int64_t{context.device.sm_count} * kFlatBlocks;
  blocks = static_cast<unsigned>(std::clamp<int64_t>(ceil_div(total, step * kFlatItems), 1, most));
  const int64_t turn = blocks * step * kFlatItems;
  return {total,
          static_cast<uint32_t>(size),
          {step / size, static_cast<uint32_t>(step % size)},
          {turn / size, static_cast<uint32_t>(turn % size)}};
}

// +scale if the lowest bit is set, else -scale.
__device__ __forceinline__ float signed_value(uint32_t bit, float scale) {
  return __uint_as_float(__float_as_uint(scale) ^ (~bit << 31));
}

// Values of packed rows: load() yields kVector adjacent ones, which must share a word.
struct ExpandedBits {
  const int32_t* words;
  const float* scale;  // [rows] or null
  int64_t pitch;       // words per row

  __device__ __forceinline__ float row_scale(int64_t row) const {
    return scale != nullptr ? __ldg(scale + row) : 1.0f;
  }
  template <int kVector>
  __device__ __forceinline__ void load(int64_t row, uint32_t column, float (&v)[kVector]) const {
    const uint32_t word =
        static_cast<uint32_t>(__ldg(words + row * pitch + (column >> 5))) >> (column & 31);
    const float s = row_scale(row);
#pragma unroll
    for (int j = 0; j < kVector; ++j) v[j] = signed_value(word >> j, s);
  }
};

// out[row, column] = value at row and column, kVector floats per store.
template <int kVector, class Values>
__global__ void __launch_bounds__(kFlatThreads)
    expand_kernel(Values values, FlatRange range, float* out) {
  struct alignas(kVector * sizeof(float)) Floats {
    float v[kVector];
  };
  for_flat<kVector>(
      range,
      [&](int64_t, int64_t row, uint32_t column) {
        Floats item;
        values.template load<kVector>(row, column, item.v);
        return item;
      },
      [&](int64_t i, const Floats& item) { *reinterpret_cast<Floats*>(out + i) = item; });
}

template <int kVector, class Values>
cudaError_t launch_expand_by(const Values& values, int64_t rows, int64_t size, float* out,
                             const Context& context) {
  unsigned blocks = 0;
  const FlatRange range = flat_range(rows, size, kVector, context, blocks);
  expand_kernel<kVector><<<blocks, kFlatThreads, 0, context.stream>>>(values, range, out);
  return cudaGetLastError();
}

// `part`: columns before the source changes, or `size`. Floats written together share a word.
template <class Values>
cudaError_t launch_expand(const Values& values, int64_t rows, int64_t size, int64_t part,
                          float* out, const Context& context) {
  if (rows == 0 || size == 0) return cudaSuccess;
  const uintptr_t address = reinterpret_cast<uintptr_t>(out) / sizeof(float);
  const uint64_t common = static_cast<uint64_t>(size | part) | address;
  if (common % 4 == 0) return launch_expand_by<4>(values, rows, size, out, context);
  if (common % 2 == 0) return launch_expand_by<2>(values, rows, size, out, context);
  return launch_expand_by<1>(values, rows, size, out, context);
}

}  // namespace bitgnn::cuda::pack
