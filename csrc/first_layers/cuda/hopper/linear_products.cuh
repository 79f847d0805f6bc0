// Warpgroup products of bytes: weights of +-1, expanded from bits in registers, times rows in
// shared memory.
#pragma once

#include "core/cuda/hopper/wgmma_b1.cuh"
#include "core/cuda/hopper/wgmma_operands.h"

namespace bitgnn::cuda::first_layers {

// Rows are stored in the unswizzled wgmma layout: core matrices of eight rows by 16 bytes, those of
// the same rows contiguous. Of 64 features, core r holds those equal to r modulo 4.
constexpr int kCoreRows = 8;
constexpr int kCoreBytes = 128;
constexpr int kCoreWords = kCoreBytes / 4;
constexpr int64_t kMostByteFeatures = 1 << 13;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// d += a * b for 64 outputs by 32 rows over 32 features; weights are signed.
template <bool kSigned>
__device__ __forceinline__ void wgmma_bytes(int32_t (&d)[16], const uint32_t (&a)[4], uint64_t b) {
#define BITGNN_WGMMA_BYTES(type)                                                          \
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k32.s32.s8." type " {" BITGNN_NAMES_16 \
               "}, {%16, %17, %18, %19}, %20, 1;\n"                                       \
               : BITGNN_SUMS_16(d)                                                        \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
  if constexpr (kSigned)
    BITGNN_WGMMA_BYTES("s8");
  else
    BITGNN_WGMMA_BYTES("u8");
#undef BITGNN_WGMMA_BYTES
}

__device__ __forceinline__ uint64_t core_descriptor(uint32_t address, int cores) {
  return static_cast<uint64_t>(static_cast<uint32_t>(cores * kCoreBytes) >> 4) << 32 |
         static_cast<uint64_t>(kCoreBytes >> 4) << 16 | (address & 0x3ffff) >> 4;
}

// Expands the 16 bits of a half word to bytes of +-1: byte t of weight[r] is that of bit 4 t + r.
// The selector's bits choose among eight bytes; its fourth bit would select sign replication.
__device__ __forceinline__ void expand_half(uint32_t (&weight)[4], uint32_t half) {
  const uint32_t three = half & 0x7777u, fourth = half >> 3 & 0x1111u;
  weight[0] = __byte_perm(0x01ff01ffu, 0x01ff01ffu, three);
  weight[1] = __byte_perm(0x0101ffffu, 0x0101ffffu, three);
  weight[2] = __byte_perm(0xffffffffu, 0x01010101u, three);
  weight[3] = __byte_perm(0x01ff01ffu, 0x01ff01ffu, fourth);
}

// low += weights * low bytes, and high likewise if kBoth. `weights` points to the lane's half word
// of the first 64 features of output g; `to_second` is the byte offset to that of output g + 8.
template <bool kBoth, bool kSigned>
__device__ __forceinline__ void multiply_bytes(int32_t (&low)[16], int32_t (&high)[16],
                                               const char* weights, int to_second, int chunks,
                                               uint64_t low_rows, uint64_t high_rows) {
  constexpr int kBytes = 8;  // per chunk of weights
  constexpr uint64_t kStep = 2 * kCoreBytes >> 4;
  uint32_t a[2][2][2][4];  // [turn][chunk][step]
  const auto expand = [&](uint32_t (&to)[2][4], int chunk) {
    uint32_t own[2][4];
#pragma unroll
    for (int h = 0; h < 2; ++h)
      expand_half(own[h],
                  *reinterpret_cast<const uint16_t*>(weights + h * to_second + chunk * kBytes));
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      to[s][0] = own[0][2 * s];
      to[s][1] = own[1][2 * s];
      to[s][2] = own[0][2 * s + 1];
      to[s][3] = own[1][2 * s + 1];
    }
  };
  const auto multiply = [&](const uint32_t (&w)[2][4], uint64_t at) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      wgmma_bytes<kSigned>(low, w[s], low_rows + at + s * kStep);
      if constexpr (kBoth) wgmma_bytes<true>(high, w[s], high_rows + at + s * kStep);
    }
  };
  // Products of two chunks are in flight while the next weights are expanded.
  const auto pair = [&](uint32_t (&w)[2][2][4], int chunk) {
    const uint64_t at = static_cast<uint64_t>(chunk) * (2 * kStep);
    expand(w[0], chunk);
    if (chunk + 1 < chunks) {
      expand(w[1], chunk + 1);
      wgmma_fence();
      multiply(w[0], at);
      multiply(w[1], at + 2 * kStep);
    } else {
      wgmma_fence();
      multiply(w[0], at);
    }
    wgmma_commit();
    wgmma_wait<1>();
  };
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; chunk += 4) {
    pair(a[0], chunk);
    if (chunk + 2 < chunks) pair(a[1], chunk + 2);
  }
  wgmma_wait<0>();
}

#endif

}  // namespace bitgnn::cuda::first_layers
