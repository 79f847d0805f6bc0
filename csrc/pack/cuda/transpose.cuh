// Transposes bit matrices: a warp transposes squares of 32 x 32 bits by recursive halving, and a
// block reads and writes whole sectors. Bound by reading and writing the words once.
#pragma once

#include "core/cuda/common.cuh"
#include "core/cuda/dependent_launch.cuh"

namespace bitgnn::cuda::pack {

constexpr int kTransposeWarps = 8;    // squares of a block from top to bottom
constexpr int kTransposeSquares = 8;  // and from left to right: 32 bytes of a row both ways

// Row `lane` of the transposed square: the off-diagonal halves of every block of 2^k x 2^k bits are
// swapped, from the largest blocks to single bits (Warren, Hacker's Delight, 7-3).
__device__ __forceinline__ uint32_t transpose_square(uint32_t row, int lane) {
  uint32_t mask = 0x0000ffffu;
#pragma unroll
  for (int half = kWarp / 2; half > 0; half /= 2, mask ^= mask << half) {
    const uint32_t other = __shfl_xor_sync(kFullWarp, row, half);
    row = (lane & half) == 0 ? (row & mask) | ((other & mask) << half)
                             : (row & ~mask) | ((other & ~mask) >> half);
  }
  return row;
}

static __global__ void __launch_bounds__(kTransposeWarps* kWarp)
    transpose_bits_kernel(const int32_t* words, int64_t rows, int64_t size, int32_t* out) {
  // One extra word per row keeps lanes that write a column in different banks.
  __shared__ uint32_t turned[kTransposeSquares * kWarp][kTransposeWarps + 1];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t row_words = words_for(size), out_words = words_for(rows);
  const int64_t first_word = static_cast<int64_t>(blockIdx.x) * kTransposeSquares;
  let_next_start();
  wait_for_previous();
  for (int64_t first_block = static_cast<int64_t>(blockIdx.y) * kTransposeWarps;
       first_block < out_words; first_block += static_cast<int64_t>(gridDim.y) * kTransposeWarps) {
    const int64_t row = (first_block + warp) * kWarp + lane;
    uint32_t own[kTransposeSquares];
#pragma unroll
    for (int s = 0; s < kTransposeSquares; ++s) {
      const bool inside = row < rows && first_word + s < row_words;
      own[s] = inside ? static_cast<uint32_t>(__ldg(words + row * row_words + first_word + s)) : 0u;
    }
#pragma unroll
    for (int s = 0; s < kTransposeSquares; ++s)
      turned[s * kWarp + lane][warp] = transpose_square(own[s], lane);
    __syncthreads();
    for (int i = threadIdx.x; i < kTransposeSquares * kWarp * kTransposeWarps; i += blockDim.x) {
      const int feature = i / kTransposeWarps, block = i % kTransposeWarps;
      const int64_t to = first_word * kWarp + feature;
      if (to < size && first_block + block < out_words)
        out[to * out_words + first_block + block] = static_cast<int32_t>(turned[feature][block]);
    }
    __syncthreads();
  }
}

}  // namespace bitgnn::cuda::pack
