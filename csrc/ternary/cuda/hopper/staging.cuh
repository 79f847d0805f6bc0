// Stages 16-bit results of wgmma products in shared memory, in the layout that TMA stores expect.
#pragma once

#include "core/cuda/mma_b1.cuh"
#include "ternary/cuda/outputs.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kStagedColumns = 64;  // of sums; a warpgroup has 64 rows of them
constexpr int kStagedBytes = 64 * kStagedColumns * 2;
constexpr int kStagedSums = kStagedColumns / 2;  // per lane

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <bool kTransposed>
__device__ __forceinline__ void store_matrices(uint32_t to, const uint32_t (&four)[4]) {
  if constexpr (kTransposed)
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(to),
        "r"(four[0]), "r"(four[1]), "r"(four[2]), "r"(four[3])
        : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(to),
                 "r"(four[0]), "r"(four[1]), "r"(four[2]), "r"(four[3])
                 : "memory");
}

// Adds the columns' terms, kCountedFrom - count, to a warpgroup's sums and writes the values to 64
// rows of 128 bytes with the 128-byte swizzle, optionally transposed.
template <class T, bool kTransposed>
__device__ __forceinline__ void stage_sums(uint32_t to, const int32_t (&sum)[kStagedSums],
                                           const int32_t* terms, float scale, int warp, int lane) {
  static_assert(sizeof(T) == 2, "rows of 64 values are 128 bytes");
  const int inside = lane % 8, matrix = lane / 8;
#pragma unroll
  for (int i = 0; i < kStagedColumns / 8; i += 2) {
    uint32_t four[4];  // columns 8 i: rows 0, rows 8; columns 8 (i + 1): rows 0, rows 8
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const int at = i + m / 2;
      const int2 term = *reinterpret_cast<const int2*>(terms + 8 * at + 2 * fragment_quad(lane));
      T pair[2];
      put_counted(pair, scale, sum[4 * at + 2 * (m % 2)] + term.x,
                  sum[4 * at + 2 * (m % 2) + 1] + term.y);
      memcpy(&four[m], pair, sizeof(pair));
    }
    const int across = i + matrix / 2, down = 2 * warp + matrix % 2;
    const int row = kTransposed ? across : down, unit = kTransposed ? down : across;
    store_matrices<kTransposed>(to + (8 * row + inside) * 128 + ((unit ^ inside) << 4), four);
  }
}

#endif

}  // namespace bitgnn::cuda::ternary
