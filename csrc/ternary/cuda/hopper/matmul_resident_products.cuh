// Operands of a block in the multi-pass Hopper products (matmul_resident.cuh) and the products of
// one warpgroup: rows in registers, columns in shared memory.
#pragma once

#include "core/cuda/hopper/async_copy.cuh"
#include "core/cuda/hopper/wgmma_b1_registers.cuh"
#include "ternary/cuda/hopper/planes_copy.cuh"
#include "ternary/cuda/hopper/staging.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kPassRows = 128;
constexpr int kPasses = 4;
constexpr int kPassColumns = kPasses * kStagedColumns;
constexpr int kPassThreads = 384;
constexpr int kPassChunkWords = 32;  // per plane of a row, 128 bytes: four products
constexpr int kMostPassWords = 2 * kPassChunkWords;
constexpr int kPassRowBytes = kPassRows * kPassChunkWords * 4;
constexpr int kPassColumnBytes = kStagedColumns * kPassChunkWords * 4;

// kProducts: products per 256 bits, 2 for boolean columns, 4 for ternary.
template <class T_, int kProducts_, int kChunks_>
struct PassForm {
  using T = T_;
  static constexpr int kProducts = kProducts_, kChunks = kChunks_;
  static constexpr bool kBoolean = kProducts == 2;
  static constexpr int kPlanes = kBoolean ? 1 : 2;
  static constexpr int kSteps = 4 * kChunks;
};

template <class Form>
struct PassShared {
  alignas(1024) unsigned char rows[Form::kChunks][2][kPassRowBytes];
  alignas(1024) unsigned char columns[kPasses][Form::kChunks][Form::kPlanes][kPassColumnBytes];
  alignas(1024) unsigned char staged[2][2][kStagedBytes];  // [warpgroup][buffer]
  alignas(16) int32_t terms[kPassColumns];
  uint64_t full[kPasses][Form::kChunks];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <class Form>
__device__ __forceinline__ void copy_pass_operands(PassShared<Form>& shared,
                                                   const CUtensorMap& row_map,
                                                   const CUtensorMap& column_map, int row,
                                                   int column, int batch1, int batch0) {
  for (int pass = 0; pass < kPasses; ++pass)
    for (int chunk = 0; chunk < Form::kChunks; ++chunk) {
      const uint32_t full = shared_address(&shared.full[pass][chunk]);
      const int word = chunk * kPassChunkWords;
      barrier_expect(full, (pass == 0 ? 2 * kPassRowBytes : 0) + Form::kPlanes * kPassColumnBytes);
      for (int plane = 0; plane < 2; ++plane) {
        if (pass == 0)
          copy_planes(shared_address(shared.rows[chunk][plane]), row_map, word, plane, row, batch1,
                      batch0, full);
        if (plane < Form::kPlanes)
          copy_planes(shared_address(shared.columns[pass][chunk][plane]), column_map, word, plane,
                      column + kStagedColumns * pass, batch1, batch0, full);
      }
    }
}

// A warpgroup's register operands and its products.
template <class Form>
struct PassProducts {
  PassShared<Form>& shared;
  uint32_t rows[Form::kSteps][2][4];  // p and ~n (boolean), or p and n (ternary)

  // Loads the fragments of 16 rows of a chunk out of the swizzled rows.
  __device__ __forceinline__ void take(int chunk, int local_row, int lane) {
    const int row = local_row + lane % 16;
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const int unit = 2 * step + lane / 16;
      const uint32_t at =
          shared_address(shared.rows[chunk][0]) + row * 128 + ((unit ^ row % 8) << 4);
      uint32_t p[4], n[4];
      load_matrices(at, p[0], p[1], p[2], p[3]);
      load_matrices(at + kPassRowBytes, n[0], n[1], n[2], n[3]);
      uint32_t (&to)[2][4] = rows[4 * chunk + step];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        to[0][i] = p[i];
        to[1][i] = Form::kBoolean ? ~n[i] : n[i];
      }
    }
  }

  __device__ __forceinline__ void wait(int pass, int chunk) {
    barrier_wait(shared_address(&shared.full[pass][chunk]), 0);
  }

  __device__ __forceinline__ void multiply(int32_t (&sum)[kStagedSums], int pass, int chunk) {
    const uint64_t p = wgmma_descriptor(shared_address(shared.columns[pass][chunk][0]));
    const uint64_t n = p + (kPassColumnBytes >> 4);
    uint32_t not_p[4][4], not_n[4][4];
    if constexpr (Form::kProducts == 4) {
#pragma unroll
      for (int step = 0; step < 4; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          not_p[step][i] = ~rows[4 * chunk + step][0][i];
          not_n[step][i] = ~rows[4 * chunk + step][1][i];
        }
    }
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const uint64_t at = step * kWgmmaAdvance;
      uint32_t (&x)[2][4] = rows[4 * chunk + step];
      wgmma_and_popc(sum, x[0], p + at, chunk != 0 || step != 0);
      wgmma_and_popc(sum, x[1], (Form::kBoolean ? p : n) + at, true);
      if constexpr (Form::kProducts == 4) {
        wgmma_and_popc(sum, not_n[step], p + at, true);
        wgmma_and_popc(sum, not_p[step], n + at, true);
      }
    }
    wgmma_commit();
  }
};

__device__ __forceinline__ void settle_sums(int32_t (&sum)[kStagedSums]) {
#pragma unroll
  for (int i = 0; i < kStagedSums; ++i) asm volatile("" : "+r"(sum[i])::"memory");
}

#endif

}  // namespace bitgnn::cuda::ternary
