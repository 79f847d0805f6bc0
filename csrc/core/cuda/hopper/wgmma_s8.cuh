// Hopper's wgmma of signed bytes with operands in swizzled shared memory.
#pragma once

#include "core/cuda/hopper/wgmma_b1.cuh"

namespace bitgnn::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// d (+)= a * b for 64 rows by `columns` over 32 bytes, with the operands and the order of sums of
// wgmma_and_popc().
#define BITGNN_WGMMA(columns, sums, a_at, b_at, accumulate_at)                              \
  __device__ __forceinline__ void wgmma_s8(int32_t (&d)[sums], uint64_t a, uint64_t b,      \
                                           bool accumulate) {                               \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #accumulate_at                        \
                 ", 0;\n"                                                                   \
                 "wgmma.mma_async.sync.aligned.m64n" #columns                               \
                 "k32.s32.s8.s8 {" BITGNN_NAMES_##sums "}, %" #a_at ", %" #b_at ", p;\n}\n" \
                 : BITGNN_SUMS_##sums(d)                                                    \
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                      \
  }
BITGNN_WGMMA(256, 128, 128, 129, 130)
BITGNN_WGMMA(128, 64, 64, 65, 66)
BITGNN_WGMMA(64, 32, 32, 33, 34)
#undef BITGNN_WGMMA

// The same with the rows in registers: a warp's 16 rows as a fragment of core/cuda/mma_b1.cuh.
#define BITGNN_WGMMA(columns, sums, a0, a1, a2, a3, b_at, accumulate_at)                           \
  __device__ __forceinline__ void wgmma_s8(int32_t (&d)[sums], const uint32_t (&a)[4], uint64_t b, \
                                           bool accumulate) {                                      \
    asm volatile(                                                                                  \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %" #accumulate_at                                        \
        ", 0;\n"                                                                                   \
        "wgmma.mma_async.sync.aligned.m64n" #columns "k32.s32.s8.s8 {" BITGNN_NAMES_##sums         \
        "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b_at ", p;\n}\n"                         \
        : BITGNN_SUMS_##sums(d)                                                                    \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));  \
  }
BITGNN_WGMMA(256, 128, 128, 129, 130, 131, 132, 133)
BITGNN_WGMMA(128, 64, 64, 65, 66, 67, 68, 69)
BITGNN_WGMMA(64, 32, 32, 33, 34, 35, 36, 37)
#undef BITGNN_WGMMA

#endif

}  // namespace bitgnn::cuda
