// Stores the results of the Hopper products of ternary rows, directly or transposed.
#pragma once

#include "core/cuda/mma_b1.cuh"
#include "ternary/cuda/outputs.cuh"

namespace bitgnn::cuda::ternary {

// A product from the kernel's view: `rows` of the ternary operand, which is held in registers, and
// `columns` of the other operand.
struct PlanesPlan {
  int64_t rows;
  int64_t columns;
  int64_t batches1;
  int chunks;
  int row_tiles;
  int column_tiles;
  const int32_t* counts;  // of the columns
  int64_t counts_batch_strides[2];
  int64_t counts_stride;
  const float* scale;
  const float* y_scale;
  void* out;    // [batches, rows, columns], transposed with boolean columns
  bool vector;  // results can be stored 8 bytes at a time
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Exchanges words within a pair of lanes, so that each has two adjacent words: the even lane those
// of `first`, the odd lane those of `second`.
__device__ __forceinline__ uint2 trade_words(uint32_t first, uint32_t second, bool odd) {
  const uint32_t other = __shfl_xor_sync(kFullWarp, odd ? first : second, 1);
  return odd ? make_uint2(other, second) : make_uint2(first, other);
}

__device__ __forceinline__ uint32_t transpose_matrix(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(y) : "r"(x));
  return y;
}

// Stores values of 16-bit types, two per word.
template <class T, bool kBoolean>
__device__ __forceinline__ void store_short(const PlanesPlan& plan, T* out,
                                            const int32_t (&sum)[128], const int32_t* counts,
                                            float scale, int64_t row, int64_t column, int lane) {
  const int group = fragment_group(lane), quad = fragment_quad(lane);
  const bool odd = quad % 2 != 0;
  const int shift = (odd ? 8 : 0) + quad / 2 * 4;  // offset of the lane's four values in sixteen
  const auto word = [&](int i, int r) {
    const int2 count = *reinterpret_cast<const int2*>(counts + 8 * i + 2 * quad);
    return two_values<T>(scale, sum[4 * i + 2 * r] - count.x, sum[4 * i + 2 * r + 1] - count.y);
  };
  if constexpr (kBoolean) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const uint2 four =
          trade_words(transpose_matrix(word(i, 0)), transpose_matrix(word(i, 1)), odd);
      const int64_t r = column + 8 * i + group, c = row + shift;
      if (r < plan.columns && c < plan.rows)
        *reinterpret_cast<uint2*>(out + r * plan.rows + c) = four;
    }
  } else {
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int i = 0; i < 32; i += 2) {
        const uint2 four = trade_words(word(i, r), word(i + 1, r), odd);
        const int64_t at = row + group + 8 * r, c = column + 8 * i + shift;
        if (at < plan.rows && c < plan.columns)
          *reinterpret_cast<uint2*>(out + at * plan.columns + c) = four;
      }
  }
}

// Stores values singly or in pairs: 32-bit types, and rows whose length is not a multiple of four.
template <class T, bool kBoolean>
__device__ __forceinline__ void store_single(const PlanesPlan& plan, T* out,
                                             const int32_t (&sum)[128], const int32_t* counts,
                                             float scale, int64_t row, int64_t column, int lane) {
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int local = 8 * i + 2 * fragment_quad(lane);
    const int2 count = *reinterpret_cast<const int2*>(counts + local);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t at = row + fragment_group(lane) + 8 * r, c = column + local;
      const T first = ternary_value<T>(scale, sum[4 * i + 2 * r] - count.x);
      const T second = ternary_value<T>(scale, sum[4 * i + 2 * r + 1] - count.y);
      if (at >= plan.rows) continue;
      if constexpr (!kBoolean && sizeof(T) == 4) {
        if (plan.vector) {
          const T two[2] = {first, second};
          uint2 bits;
          memcpy(&bits, two, sizeof(bits));
          if (c < plan.columns) *reinterpret_cast<uint2*>(out + at * plan.columns + c) = bits;
          continue;
        }
      }
      if (c < plan.columns) out[kBoolean ? c * plan.rows + at : at * plan.columns + c] = first;
      if (c + 1 < plan.columns)
        out[kBoolean ? (c + 1) * plan.rows + at : at * plan.columns + c + 1] = second;
    }
  }
}

#endif

}  // namespace bitgnn::cuda::ternary
