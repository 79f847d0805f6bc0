// Products of packed rows in shared memory with weights that warps read from L2 into registers.
#pragma once

#include "bmm/cuda/mma_tile.cuh"

namespace bitgnn::cuda::bmm {

constexpr int kStreamColumns = 32;  // columns per warp at a time
constexpr int kStreamColumnFragments = kStreamColumns / kMmaColumns;
constexpr int kStreamRowFragments = 4;  // row fragments per warp, at most
constexpr int kStreamMostWarps = 16;    // warps per block, at most
// The word order of a row is free as long as rows and weights agree: a lane's words of two products
// are 16 consecutive bytes.
constexpr int kStreamStepWords = 2 * kMmaWords;

// How the launcher partitions the product.
struct StreamingPlan {
  int words;         // of a row
  int chunk_words;   // words in shared memory at a time: all, or a multiple of a step
  int pitch;         // row pitch in words
  int fragments;     // of 16 rows per warp: 1, 2 or 4
  int row_warps;     // warps along the rows
  int column_warps;  // warps along the columns
  bool vectors;      // weight rows are 16-byte aligned

  __host__ __device__ int warps() const { return row_warps * column_warps; }
  __host__ __device__ int rows() const { return row_warps * fragments * kMmaRows; }
  __host__ __device__ bool chunked() const { return chunk_words < words; }
};

// Shared memory of one warp.
struct StreamingWarp {
  ColumnTable<kStreamColumns> table;
  alignas(16) int32_t staged[kStagedWords];
};

// Sums of popc(a & b) of the warp's rows and columns.
using StreamingSums = int32_t[kStreamRowFragments][kStreamColumns / 2];

// Loads words `word` to `word` + 3 of a weight row; zeros from `words` on.
__device__ __forceinline__ uint4 load_four_words(const int32_t* row, int word, int words,
                                                 bool vectors) {
  uint4 v = make_uint4(0, 0, 0, 0);
  if (vectors) {
    if (word < words) v = __ldg(reinterpret_cast<const uint4*>(row + word));
  } else {
    const auto* from = reinterpret_cast<const uint32_t*>(row + word);
    if (word < words) v.x = __ldg(from);
    if (word + 1 < words) v.y = __ldg(from + 1);
    if (word + 2 < words) v.z = __ldg(from + 2);
    if (word + 3 < words) v.w = __ldg(from + 3);
  }
  return v;
}

__device__ __forceinline__ int count_bits(const uint4& v) {
  return __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
}

// Multiplies the rows at `packed` with 32 columns over words [first_word, last_word), and adds the
// lane's share of the popcounts of columns 8 j + g to `count`. `weights` is the weight row of the
// first column; `last` is the last column that exists.
__device__ __forceinline__ void multiply_streaming(StreamingSums& sum,
                                                   int (&count)[kStreamColumnFragments],
                                                   const uint32_t* packed, const int32_t* weights,
                                                   int last, const StreamingPlan& plan,
                                                   int first_word, int last_word, int lane) {
  const int quad_word = fragment_quad(lane) * 4;
  const uint32_t* rows = packed + fragment_group(lane) * plan.pitch + quad_word;
  const int32_t* columns[kStreamColumnFragments];
#pragma unroll
  for (int j = 0; j < kStreamColumnFragments; ++j)
    columns[j] = weights + static_cast<int64_t>(min(j * kMmaColumns + fragment_group(lane), last)) *
                               plan.words;
  uint4 next[kStreamColumnFragments];
#pragma unroll
  for (int j = 0; j < kStreamColumnFragments; ++j)
    next[j] = load_four_words(columns[j], first_word + quad_word, plan.words, plan.vectors);
#pragma unroll 1
  for (int word = first_word; word < last_word; word += kStreamStepWords) {
    uint32_t b[kStreamColumnFragments][4];
#pragma unroll
    for (int j = 0; j < kStreamColumnFragments; ++j) {
      count[j] += count_bits(next[j]);
      b[j][0] = next[j].x;
      b[j][1] = next[j].y;
      b[j][2] = next[j].z;
      b[j][3] = next[j].w;
    }
    if (word + kStreamStepWords < last_word) {
#pragma unroll
      for (int j = 0; j < kStreamColumnFragments; ++j)
        next[j] = load_four_words(columns[j], word + kStreamStepWords + quad_word, plan.words,
                                  plan.vectors);
    }
#pragma unroll
    for (int i = 0; i < kStreamRowFragments; ++i) {
      if (i >= plan.fragments) break;
      const uint4 low = *reinterpret_cast<const uint4*>(rows + i * kMmaRows * plan.pitch);
      const uint4 high =
          *reinterpret_cast<const uint4*>(rows + (i * kMmaRows + kMmaRows / 2) * plan.pitch);
      const uint32_t a[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int j = 0; j < kStreamColumnFragments; ++j) {
          const uint32_t column[2] = {b[j][half * 2], b[j][half * 2 + 1]};
          mma_and_popc(*reinterpret_cast<int32_t (*)[4]>(&sum[i][j * 4]), a[half], column);
        }
      }
    }
    rows += kStreamStepWords;
  }
}

}  // namespace bitgnn::cuda::bmm
