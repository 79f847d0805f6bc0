// Hopper's 1-bit wgmma with operands in swizzled shared memory: AND and popcount.
#pragma once

#include <cstdint>

#include "core/cuda/hopper/wgmma_operands.h"

namespace bitgnn::cuda {

// Both operands are laid out as the TMA writes them with its 128-byte swizzle: rows of 128 bytes
// (1024 bits), eight of which form one 1024-byte aligned pattern.
constexpr int kSwizzleBytes = 128;
constexpr int kSwizzleWords = kSwizzleBytes / 4;
constexpr int kWgmmaRows = 64;
constexpr int kWgmmaColumns = 256;
constexpr int kWgmmaSteps = 4;         // instructions for one swizzled row, 256 bits each
constexpr uint64_t kWgmmaAdvance = 2;  // descriptor increment per instruction

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Descriptor: address in units of 16 bytes, 1024 bytes between groups of eight rows, 128-byte
// swizzle.
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t shared_address) {
  constexpr uint64_t kEightRows = 1024 >> 4;
  constexpr uint64_t kSwizzle128 = 1;
  return (kSwizzle128 << 62) | (kEightRows << 32) | (uint64_t{1} << 16) |
         ((shared_address & 0x3ffff) >> 4);
}

// The same without swizzling: rows of 16 bytes, eight of which are 128 bytes. `low` is the lower
// half of the descriptor.
__device__ __forceinline__ uint64_t plain_descriptor(uint32_t low) {
  constexpr uint64_t kEightRows = 128 >> 4;
  return (kEightRows << 32) | low;
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

// d (+)= popc(a & b) for 64 rows by `columns` over 256 bits; warp w of the group holds rows 16 w to
// 16 w + 15, every eight columns as an accumulator fragment of core/cuda/mma_b1.cuh. The last
// arguments are the numbers of the operands after the sums.
#define BITGNN_WGMMA(columns, sums, a_at, b_at, accumulate_at)                               \
  __device__ __forceinline__ void wgmma_and_popc(int32_t (&d)[sums], uint64_t a, uint64_t b, \
                                                 bool accumulate) {                          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #accumulate_at                         \
                 ", 0;\n"                                                                    \
                 "wgmma.mma_async.sync.aligned.m64n" #columns                                \
                 "k256.s32.b1.b1.and.popc {" BITGNN_NAMES_##sums "}, %" #a_at ", %" #b_at    \
                                                                 ", p;\n}\n"                 \
                 : BITGNN_SUMS_##sums(d)                                                     \
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                       \
  }
BITGNN_WGMMA(256, 128, 128, 129, 130)
BITGNN_WGMMA(144, 72, 72, 73, 74)
BITGNN_WGMMA(128, 64, 64, 65, 66)
BITGNN_WGMMA(64, 32, 32, 33, 34)
#undef BITGNN_WGMMA

// Makes the thread's plain writes to shared memory visible to wgmma.
__device__ __forceinline__ void wgmma_write_fence() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

#endif

}  // namespace bitgnn::cuda
