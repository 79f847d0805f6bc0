// Tensor-core products of signed bytes: mma.sync, with the fragments of core/cuda/mma_b1.cuh.
#pragma once

#include "core/cuda/mma_b1.cuh"

namespace bitgnn::cuda {

// d += a * b for 16 rows by 8 columns over 32 bytes: words of four bytes stand where 1-bit
// fragments have words of bits.
__device__ __forceinline__ void mma_s8(int32_t (&d)[4], const uint32_t (&a)[4],
                                       const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace bitgnn::cuda
