// Products of boolean rows with few ternary columns, such as the values of an attention head.
// Operands go straight from global memory into mma.sync fragments; kSplit warps split the bits of
// the same rows; columns are dealt to fragments so that a lane's results are contiguous.
//   p & a and ~n & a count dot + the set bits of a.
// Bound by one load latency for the operands; every block rereads the columns from L2.
#pragma once

#include "ternary/arguments.h"
#include "ternary/cuda/matmul/short_rows.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kNarrowColumns = 64;  // per block
constexpr int kNarrowTiles = kNarrowColumns / kMmaColumns;
constexpr int kNarrowPitch = kNarrowColumns + 4;  // of a row of partial sums

// Tile shape. kHeights: 16-row tiles per kSplit warps; kWords: words of a row per load of a lane.
template <int kWarps_, int kSplit_, int kHeights_, int kWords_>
struct NarrowForm {
  static constexpr int kWarps = kWarps_, kSplit = kSplit_, kHeights = kHeights_, kWords = kWords_;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kRows = kHeights * kMmaRows;
  static constexpr int kBlockRows = kWarps / kSplit * kRows;
  static constexpr int kSharedWords = kSplit > 1 ? kWarps * kRows * kNarrowPitch : 0;
  using Vector = std::conditional_t<kWords == 4, uint4, uint2>;
};

struct NarrowPlan {
  int row_blocks;
  int column_blocks;
  bool vector_out;  // eight results can be stored at once
};

// Loads kWords words of a row of `words`, starting at `word`. kVector: all or none of them exist.
template <class Form, bool kVector>
__device__ __forceinline__ typename Form::Vector load_words(const int32_t* row, int word,
                                                            int words) {
  typename Form::Vector v{};
  if constexpr (kVector) {
    if (word < words) v = load_in_place(reinterpret_cast<const typename Form::Vector*>(row + word));
  } else {
    uint32_t each[Form::kWords];
#pragma unroll
    for (int i = 0; i < Form::kWords; ++i)
      each[i] = word + i < words ? static_cast<uint32_t>(load_in_place(row + word + i)) : 0u;
    memcpy(&v, each, sizeof(v));
  }
  return v;
}

template <class T, class Form, bool kVector>
__global__ void __launch_bounds__(Form::kThreads)
    ternary_narrow_kernel(const __grid_constant__ TernaryMatmulArgs a,
                          const __grid_constant__ NarrowPlan plan) {
  constexpr int kSplit = Form::kSplit, kHeights = Form::kHeights, kWords = Form::kWords;
  constexpr int kSlice = 4 * kWords;  // words of a row that a warp reads at once
  extern __shared__ __align__(16) int32_t parts[];
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int group = fragment_group(lane), quad = fragment_quad(lane);
  const auto blocks = static_cast<unsigned>(plan.row_blocks) * plan.column_blocks;
  const unsigned batch = blockIdx.x / blocks, inside = blockIdx.x - batch * blocks;
  const unsigned row_block = inside / plan.column_blocks;
  const unsigned column_block = inside - row_block * plan.column_blocks;
  const unsigned b0 = batch / static_cast<unsigned>(a.batches[1]);
  const unsigned b1 = batch - b0 * static_cast<unsigned>(a.batches[1]);
  const int64_t column = static_cast<int64_t>(column_block) * kNarrowColumns;
  const int64_t row = static_cast<int64_t>(row_block) * Form::kBlockRows;
  const auto words = static_cast<int>(words_for(a.size));
  const auto columns = static_cast<int>(min(int64_t{kNarrowColumns}, a.columns - column));
  const auto rows = static_cast<int>(min(int64_t{Form::kBlockRows}, a.rows - row));
  const int32_t* x =
      a.x.words + b0 * a.x.batch_strides[0] + b1 * a.x.batch_strides[1] + row * a.x.row_stride;
  const int32_t* y =
      a.y.words + b0 * a.y.batch_strides[0] + b1 * a.y.batch_strides[1] + column * a.y.row_stride;
  const int32_t* counts = a.x.counts + b0 * a.x.counts_batch_strides[0] +
                          b1 * a.x.counts_batch_strides[1] + row * a.x.counts_row_stride;
  T* out = static_cast<T*>(a.out) + (batch * a.rows + row) * a.columns + column;
  const int own_row = warp / kSplit * Form::kRows + group;
  const auto x_stride = static_cast<int>(a.x.row_stride);
  const auto y_stride = static_cast<int>(a.y.row_stride);
  const auto counts_stride = static_cast<int>(a.x.counts_row_stride);
  const auto row_at = [&](int height, int half) {
    return min(own_row + kMmaRows * height + 8 * half, rows - 1);
  };
  wait_for_previous();

  int32_t sum[kHeights][kNarrowTiles][4];
#pragma unroll
  for (int i = 0; i < kHeights; ++i)
#pragma unroll
    for (int j = 0; j < kNarrowTiles; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][j][e] = 0;
  // The first of the warps that share rows starts from minus the rows' counts.
  const bool first_warp = warp % kSplit == 0;
  int32_t start[kHeights][2];
#pragma unroll
  for (int i = 0; i < kHeights; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      start[i][half] = load_in_place(counts + row_at(i, half) * counts_stride);
#pragma unroll 1
  for (int word = warp % kSplit * kSlice; word < words; word += kSplit * kSlice) {
    const int at = word + kWords * quad;
    typename Form::Vector bits[kHeights][2];
#pragma unroll
    for (int i = 0; i < kHeights; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        bits[i][half] = load_words<Form, kVector>(x + row_at(i, half) * x_stride, at, words);
    typename Form::Vector planes[kNarrowTiles][2];
#pragma unroll
    for (int j = 0; j < kNarrowTiles; ++j) {
      const int32_t* plane = y + min(dealt_column(j, group), columns - 1) * y_stride;
      planes[j][0] = load_words<Form, kVector>(plane, at, words);
      planes[j][1] = load_words<Form, kVector>(plane + words, at, words);
    }
#pragma unroll
    for (int pair = 0; pair < kWords; pair += 2)
#pragma unroll
      for (int j = 0; j < kNarrowTiles; ++j) {
        const uint32_t* p = reinterpret_cast<const uint32_t*>(&planes[j][0]) + pair;
        const uint32_t* n = reinterpret_cast<const uint32_t*>(&planes[j][1]) + pair;
#pragma unroll
        for (int i = 0; i < kHeights; ++i) {
          const uint32_t* upper = reinterpret_cast<const uint32_t*>(&bits[i][0]) + pair;
          const uint32_t* lower = reinterpret_cast<const uint32_t*>(&bits[i][1]) + pair;
          mma_and_popc(sum[i][j], {upper[0], lower[0], upper[1], lower[1]}, {p[0], p[1]});
          mma_and_popc(sum[i][j], {upper[0], lower[0], upper[1], lower[1]}, {~n[0], ~n[1]});
        }
      }
  }
  const float scale = product_scale(a.scale, a.y_scale);
  if constexpr (kSplit == 1) {
#pragma unroll
    for (int i = 0; i < kHeights; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = own_row + kMmaRows * i + 8 * half;
        if (r >= rows) continue;
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          T values[8];
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const int32_t from = kCountedFrom - start[i][half];
            const int32_t (&own)[4] = sum[i][4 * side + k];
            put_counted(values + 2 * k, scale, from + own[2 * half], from + own[2 * half + 1]);
          }
          const int c = 32 * side + 8 * quad;
          store_eight(out + r * a.columns + c, values, columns - c, plan.vector_out);
        }
      }
  } else {
    int32_t* own = parts + warp * Form::kRows * kNarrowPitch;
#pragma unroll
    for (int i = 0; i < kHeights; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int32_t from = first_warp ? kCountedFrom - start[i][half] : 0;
        int32_t* to = own + (kMmaRows * i + 8 * half + group) * kNarrowPitch + 8 * quad;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int32_t (&one)[4] = sum[i][2 * k];
          const int32_t (&two)[4] = sum[i][2 * k + 1];
          *reinterpret_cast<int4*>(to + 32 * (k / 2) + 4 * (k % 2)) =
              make_int4(from + one[2 * half], from + one[2 * half + 1], from + two[2 * half],
                        from + two[2 * half + 1]);
        }
      }
    __syncthreads();
    constexpr int kEights = kNarrowColumns / 8;
    constexpr int kPart = Form::kRows * kNarrowPitch;
#pragma unroll 1
    for (int item = static_cast<int>(threadIdx.x); item < Form::kBlockRows * kEights;
         item += Form::kThreads) {
      const int r = item / kEights, c = item % kEights * 8;
      const int32_t* from =
          parts + r / Form::kRows * kSplit * kPart + r % Form::kRows * kNarrowPitch + c;
      int32_t total[8] = {};
#pragma unroll
      for (int s = 0; s < kSplit; ++s)
#pragma unroll
        for (int k = 0; k < 8; ++k) total[k] += from[s * kPart + k];
      T values[8];
#pragma unroll
      for (int k = 0; k < 8; k += 2) put_counted(values + k, scale, total[k], total[k + 1]);
      if (r < rows) store_eight(out + r * a.columns + c, values, columns - c, plan.vector_out);
    }
  }
}

}  // namespace bitgnn::cuda::ternary
