// Shared memory of the warpgroup product of 8-bit rows: resident weights and rings of stages.
//
// Every consumer has a ring of its own. For each of its tiles of 64 rows it carries the chunks of
// 128 codes and then, with staged results, a slot of the same size for every 32 outputs: it brings
// their addends, if any, and takes float results to memory.
#pragma once

#include "core/cuda/hopper/async_copy.cuh"
#include "core/cuda/hopper/box_copy.cuh"
#include "core/cuda/hopper/ring.cuh"
#include "core/cuda/hopper/wgmma_s8.cuh"
#include "int8/cuda/epilogue.cuh"
#include "int8/cuda/quantise.cuh"

namespace bitgnn::cuda::int8 {

constexpr int kStageBytes = kWgmmaRows * kSwizzleBytes;
constexpr int kMostStages = 24;
constexpr int kLeastStages = 2;  // of a ring
constexpr int kMostChunks = 24;
constexpr int kSlotColumns = kSwizzleBytes / static_cast<int>(sizeof(float));
constexpr int kGroupThreads = 128;  // of a warpgroup
constexpr int kGroupWarps = kGroupThreads / kWarp;
static_assert(kChunk == kSwizzleBytes, "a stage holds a chunk of every row");

// Division of the work.
struct WgmmaPlan {
  int chunks;
  int stages;  // of a ring
  int64_t row_tiles;
  int column_tiles;
  bool vectors;  // float rows consist of whole aligned vectors
  bool staged;   // results pass through the ring

  // Tiles of the block's column tile: first, first + stride, ...
  __device__ __forceinline__ int64_t first() const { return blockIdx.x / column_tiles; }
  __device__ __forceinline__ int64_t stride() const { return gridDim.x / column_tiles; }
};

struct WgmmaMaps {
  CUtensorMap weights;
  CUtensorMap rows;    // of codes
  CUtensorMap addend;  // of staged results; boxes of a tile's rows
  CUtensorMap out;     // boxes of a warp's rows
};

template <int kColumns>
struct WgmmaTail {
  bmm::ColumnTable<kColumns> columns;
  uint64_t full[kMostStages];
  uint64_t empty[kMostStages];
  uint64_t weights[kMostChunks];
};

// A ring as its producer or its consumer sees it.
struct StageRing {
  unsigned char* stages;  // [size][64][128]
  uint64_t* filled;
  uint64_t* emptied;
  int size;
  RingCursor cursor = {};

  __device__ __forceinline__ unsigned char* stage() const {
    return stages + cursor.at * kStageBytes;
  }
  __device__ __forceinline__ uint32_t full() const { return shared_address(filled + cursor.at); }
  __device__ __forceinline__ uint32_t empty() const { return shared_address(emptied + cursor.at); }
  __device__ __forceinline__ void advance() { cursor.advance(size); }
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __device__ __forceinline__ void wait_full() const { barrier_wait(full(), cursor.phase); }
  __device__ __forceinline__ void wait_empty() const { barrier_wait(empty(), cursor.phase ^ 1); }
#endif
};

// A block's shared memory.
template <int kColumns, int kRings>
struct WgmmaMemory {
  unsigned char* weights;  // [chunks][kColumns][128], 1024-byte aligned
  unsigned char* stages;   // of all rings
  WgmmaTail<kColumns>& tail;
  float* centres;  // [chunks * 128], then inverse steps likewise, if rows are floats
  int slots;       // of results per tile

  __device__ __forceinline__ WgmmaMemory(unsigned char* raw, const WgmmaPlan& plan, int slots)
      : weights(reinterpret_cast<unsigned char*>((reinterpret_cast<uintptr_t>(raw) + 1023) &
                                                 ~uintptr_t{1023})),
        stages(weights + plan.chunks * kColumns * kSwizzleBytes),
        tail(*reinterpret_cast<WgmmaTail<kColumns>*>(stages + kRings * plan.stages * kStageBytes)),
        centres(reinterpret_cast<float*>(&tail + 1)),
        slots(slots) {}

  __device__ __forceinline__ StageRing ring(int consumer, const WgmmaPlan& plan) const {
    const int first = consumer * plan.stages;
    return {stages + first * kStageBytes, tail.full + first, tail.empty + first, plan.stages};
  }
};

}  // namespace bitgnn::cuda::int8
