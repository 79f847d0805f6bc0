// A row's neighbours in CSR order as a source of aggregate_rows, and padding of their table.
#pragma once

#include "bspmm/arguments.h"
#include "bspmm/cuda/rows.cuh"

namespace bitgnn::cuda::bspmm {

// Lanes read neighbours in turn, with kBatch loads in flight.
//
// A ternary row is a pair of packed rows, `pos` and `neg`; the arguments describe these, with two
// edges per neighbour. The bits of `neg` are read inverted, so a neighbour's value is half the sum
// of two values +-1, and one counter suffices.
template <bool kTernary>
struct NeighbourRows {
  static constexpr int kUnitPlanes = 1;
  static constexpr bool kHalved = kTernary;
  static constexpr int kRows = kTernary ? 2 : 1;  // packed rows per neighbour

  AggregateArgs a;
  BoundTable bounds{};

  __device__ __forceinline__ RowExtent extent(int64_t row) const {
    const int64_t begin = row_pointer(a, row);
    const int degree = kRows * static_cast<int>(row_pointer(a, row + 1) - begin);
    return {begin, degree, degree};
  }

  // The planes must be clear on entry.
  template <int kBatch, int kWords, int kPlanes>
  __device__ __forceinline__ void count(CountPlanes<kWords, kPlanes>& planes,
                                        const RowExtent& extent, int first, int end, int stride,
                                        int64_t first_word) const {
    if (first >= end) return;
    static_assert(kBatch % 2 == 0, "a batch leaves even edges even");
    const int32_t* indices = a.indices + extent.begin;
    int32_t index[kBatch];
    WordVector<kWords> x[kBatch];
    load_indices(index, indices, first, end, stride);
    load_rows(x, index, first, stride, first_word);
    // Fetch the next indices while the rows arrive.
    first += kBatch * stride;
    load_indices(index, indices, first, end, stride);
    planes.set(x);
    while (first < end) {
      load_rows(x, index, first, stride, first_word);
      first += kBatch * stride;
      load_indices(index, indices, first, end, stride);
      planes.add(x);
    }
  }

 private:
  template <int kBatch>
  static __device__ __forceinline__ void load_indices(int32_t (&index)[kBatch],
                                                      const int32_t* indices, int first, int end,
                                                      int stride) {
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int edge = first + k * stride;
      index[k] = edge < end ? __ldg(indices + edge / kRows) : -1;
    }
  }

  template <int kBatch, int kWords>
  __device__ __forceinline__ void load_rows(WordVector<kWords> (&x)[kBatch],
                                            const int32_t (&index)[kBatch], int first, int stride,
                                            int64_t first_word) const {
    const char* table = static_cast<const char*>(a.x) + first_word * sizeof(uint32_t);
    // One 32-bit multiplication per address.
    const auto row_bytes = static_cast<uint32_t>(a.x_stride * sizeof(uint32_t));
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const bool is_neg = kTernary && (first + k * stride) % 2 != 0;
      uint64_t place = static_cast<uint64_t>(static_cast<uint32_t>(index[k])) * (kRows * row_bytes);
      if (is_neg) place += row_bytes;
      x[k] = WordVector<kWords>{};
      if (index[k] < 0) continue;
      x[k] = load_words<kWords>(reinterpret_cast<const uint32_t*>(table + place));
      if constexpr (kTernary) {
#pragma unroll
        for (int w = 0; w < kWords; ++w) x[k].word[w] ^= is_neg ? ~0u : 0u;
      }
    }
  }
};

using CsrRows = NeighbourRows<false>;
using TernaryRows = NeighbourRows<true>;

// Copies rows to a table [cols, pitch], padding each with zeros.
static __global__ void pad_rows(const AggregateArgs a, int64_t pitch, uint32_t* table) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= a.cols * pitch) return;
  const int64_t row = i / pitch, word = i % pitch;
  table[i] =
      word < words_for(a.features) ? static_cast<const uint32_t*>(a.x)[row * a.x_stride + word] : 0;
}

constexpr int kAccessWords = 4;  // words of the widest access
constexpr int kPadThreads = 256;

// True if accesses of `count` words read rows without crossing their ends.
inline bool reads_in(const AggregateArgs& a, int count) {
  return words_for(a.features) % count == 0 && a.x_stride % count == 0 &&
         reinterpret_cast<uintptr_t>(a.x) % (count * sizeof(int32_t)) == 0;
}

// Replaces the rows by a copy whose pitch is a multiple of `access` words.
inline cudaError_t pad_table(AggregateArgs& a, const Context& context, int access = kAccessWords) {
  const int64_t pitch = ceil_div(words_for(a.features), access) * access;
  auto* table = static_cast<uint32_t*>(context.workspace.take(a.cols * pitch * sizeof(uint32_t)));
  const int64_t blocks = ceil_div(a.cols * pitch, kPadThreads);
  pad_rows<<<static_cast<unsigned>(blocks), kPadThreads, 0, context.stream>>>(a, pitch, table);
  a.x = table;
  a.x_stride = pitch;
  return cudaGetLastError();
}

}  // namespace bitgnn::cuda::bspmm
