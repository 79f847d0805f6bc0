// Hopper's 1-bit wgmma with rows in registers and columns in shared memory.
#pragma once

#include "core/cuda/hopper/wgmma_b1.cuh"

namespace bitgnn::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Unswizzled columns in blocks of eight columns by 16 bytes (128 bits), 128 bytes each: `next_bits`
// bytes between 128-bit pieces of a column, 128 bytes between groups of eight columns.
__device__ __forceinline__ uint64_t plain_descriptor(uint32_t shared_address, int next_bits) {
  constexpr uint64_t kEightColumns = 128 >> 4;
  return (kEightColumns << 32) | (static_cast<uint64_t>(next_bits >> 4) << 16) |
         ((shared_address & 0x3ffff) >> 4);
}

// d (+)= popc(a & b) for 64 rows by `columns` over 256 bits. Fragments are those of
// core/cuda/mma_b1.cuh; warp w of the group holds rows 16 w to 16 w + 15. The last arguments are
// the operands after the sums.
#define BITGNN_WGMMA_REGISTERS(columns, sums, a_at, b_at, accumulate_at)                          \
  __device__ __forceinline__ void wgmma_and_popc(int32_t (&d)[sums], const uint32_t (&a)[4],      \
                                                 uint64_t b, bool accumulate) {                   \
    asm volatile(                                                                                 \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %" #accumulate_at                                       \
        ", 0;\n"                                                                                  \
        "wgmma.mma_async.sync.aligned.m64n" #columns                                              \
        "k256.s32.b1.b1.and.popc {" BITGNN_NAMES_##sums "}, {" a_at "}, %" #b_at ", p;\n}\n"      \
        : BITGNN_SUMS_##sums(d)                                                                   \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate))); \
  }
BITGNN_WGMMA_REGISTERS(32, 16, "%16, %17, %18, %19", 20, 21)
BITGNN_WGMMA_REGISTERS(64, 32, "%32, %33, %34, %35", 36, 37)
BITGNN_WGMMA_REGISTERS(96, 48, "%48, %49, %50, %51", 52, 53)
BITGNN_WGMMA_REGISTERS(128, 64, "%64, %65, %66, %67", 68, 69)
#undef BITGNN_WGMMA_REGISTERS

#endif

}  // namespace bitgnn::cuda
