// Shared-memory tiles of keys and values for attention on bits, ordered so that the bits of a
// thread's scores directly form an operand fragment of the product with the values.
#pragma once

#include "attention/arguments.h"
#include "core/cuda/hopper/wgmma_b1_registers.cuh"
#include "core/cuda/mma_b1.cuh"

namespace bitgnn::cuda::attention {

constexpr int kTileKeys = 128;
constexpr int kCoreBytes = kTileKeys * 16;  // 128 bits of every key of a tile
constexpr int kStepBytes = 2 * kCoreBytes;  // 256 bits of every key of a tile

// Tile shapes. kDim: features of a head, rounded up to 32, 64, 96 or 128. A stage is kPack tiles of
// keys, whose scores are packed into the same registers with kBits bits each.
template <int kDim>
struct AttentionShape {
  static constexpr int kWords = kDim / 32;               // per plane
  static constexpr int kSteps = (4 * kWords + 7) / 8;    // 256-bit products per score
  static constexpr int kPack = 2 * kDim <= 128 ? 4 : 2;  // scores are 0 .. 2 * kDim
  static constexpr int kBits = 32 / kPack;
  static constexpr int kGroups = kDim <= 64 ? 2 : 3;    // warpgroups per block
  static constexpr int kResident = kDim <= 64 ? 2 : 1;  // blocks per SM
  // Scores are computed one part of a tile at a time. With registers for two parts, the tensor
  // cores fill one while the other is processed; but more resident warps are worth more than that.
  static constexpr int kParts = kDim <= 64 ? 1 : 2;
  static constexpr int kPartKeys = kTileKeys / kParts;
  static constexpr int kPartScores = kPartKeys / 2;       // per lane, for its two rows
  static constexpr int kPartBytes = kCoreBytes / kParts;  // in each core
  static constexpr int kThreads = 128 * kGroups;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kRows = 64 * kGroups;  // queries per block
  static constexpr int kStageKeys = kPack * kTileKeys;
  static constexpr int kStageWords = kStageKeys / 32;
  static constexpr int kFragments = kStageKeys / 256;
  static constexpr int kTileBytes = kSteps * kStepBytes;
  static constexpr int kPlaneBytes = kDim * 32;  // of a fragment's values
  static constexpr int kScores = 2 * kDim + 1;
};

// A stage as it is copied to shared memory.
template <int kDim>
struct AttentionStage {
  using S = AttentionShape<kDim>;
  alignas(128) unsigned char keys[S::kPack * S::kTileBytes];
  alignas(128) uint32_t valid[S::kStageWords];  // keys that may be attended to
  alignas(128) unsigned char values[S::kFragments * 2 * S::kPlaneBytes];
};

template <int kDim>
constexpr int kStageBytesWithoutValues = offsetof(AttentionStage<kDim>, values);

// Key of the stage at column `column` of tile `tile`. A lane's columns are 8 i + 2 q + b; its
// scores v = 2 i + b of all tiles form kPack words of consecutive keys, starting at the stage's
// word q * kPack.
template <int kDim>
__device__ __forceinline__ int key_of_column(int tile, int column) {
  using S = AttentionShape<kDim>;
  const int quad = column % 8 / 2;
  const int v = column / 8 * 2 + column % 2;
  return quad * (32 * S::kPack) + v / S::kBits * 32 + (S::kPack - 1 - tile) * S::kBits +
         v % S::kBits;
}

// Feature at a column of the values. A lane's columns 8 i + 2 q + b are consecutive features, which
// it stores.
template <int kDim>
__device__ __forceinline__ int feature_of_column(int column) {
  return column % 8 / 2 * (kDim / 4) + column / 8 * 2 + column % 2;
}

// Byte offset of 128 bits (a core) of a column; eight columns form one core matrix.
__device__ __forceinline__ int key_place(int column, int core) {
  return core * kCoreBytes + column * 16;
}
template <int kDim>
__device__ __forceinline__ int value_place(int column, int core) {
  return core * (kDim * 16) + column * 16;
}

// Computes the scores of a warp's 16 rows with a part of a tile's keys; with `accumulate` they are
// added to `sum`.
template <int kDim>
__device__ __forceinline__ void multiply_keys(
    int32_t (&sum)[AttentionShape<kDim>::kPartScores],
    const uint32_t (&query)[AttentionShape<kDim>::kSteps][4], const unsigned char* tile,
    bool accumulate) {
  using S = AttentionShape<kDim>;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const uint64_t keys = plain_descriptor(shared_address(tile), kCoreBytes);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < S::kSteps; ++step)
    wgmma_and_popc(sum, query[step], keys + step * (kStepBytes >> 4), accumulate || step != 0);
  wgmma_commit();
#else
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int i = 0; i < S::kPartKeys / 8; ++i) {
    int32_t part[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) part[j] = accumulate ? sum[4 * i + j] : 0;
#pragma unroll
    for (int step = 0; step < S::kSteps; ++step) {
      const auto* from =
          reinterpret_cast<const uint32_t*>(tile + key_place(8 * i, 2 * step)) + lane;
      const uint32_t words[2] = {from[0], from[kCoreBytes / 4]};
      mma_and_popc(part, query[step], words);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[4 * i + j] = part[j];
  }
#endif
}

// Adds popc(bits & p) + popc(bits & ~n) for a fragment of 256 keys.
template <int kDim>
__device__ __forceinline__ void multiply_values(int32_t (&out)[kDim / 2], const uint32_t (&bits)[4],
                                                const unsigned char* planes) {
  using S = AttentionShape<kDim>;
#pragma unroll
  for (int plane = 0; plane < 2; ++plane) {
    const unsigned char* from = planes + plane * S::kPlaneBytes;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    wgmma_and_popc(out, bits, plain_descriptor(shared_address(from), kDim * 16), true);
#else
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      int32_t part[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) part[j] = out[4 * i + j];
      const auto* words =
          reinterpret_cast<const uint32_t*>(from + value_place<kDim>(8 * i, 0)) + lane;
      const uint32_t column[2] = {words[0], words[kDim * 4]};
      mma_and_popc(part, bits, column);
#pragma unroll
      for (int j = 0; j < 4; ++j) out[4 * i + j] = part[j];
    }
#endif
  }
}

__device__ __forceinline__ void products_fence() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  wgmma_fence();
#endif
}

__device__ __forceinline__ void products_commit() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  wgmma_commit();
#endif
}

// Waits for all but the newest kPending groups of products; no use of `sum` moves ahead of it.
template <int kPending, int kCount>
__device__ __forceinline__ void products_wait([[maybe_unused]] int32_t (&sum)[kCount]) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  wgmma_wait<kPending>();
#pragma unroll
  for (int32_t& x : sum) asm volatile("" : "+r"(x)::"memory");
#endif
}

}  // namespace bitgnn::cuda::attention
