// Shared memory of the warpgroup product of 8-bit rows: resident weights and rings of stages.
//
// Every consumer has a ring of its own. For each of its tiles of 64 rows it brings the chunks of
// 128 codes and then, with staged addends, a slot of the same size for every 32 outputs, or for 64
// if addends have 16 bits.
#pragma once

#include "core/cuda/hopper/async_copy.cuh"
#include "core/cuda/hopper/ring.cuh"
#include "core/cuda/hopper/wgmma_s8.cuh"
#include "int8/cuda/epilogue.cuh"
#include "int8/cuda/quantise.cuh"

namespace bitgnn::cuda::int8 {

constexpr int kStageBytes = kWgmmaRows * kSwizzleBytes;
constexpr int kMostStages = 24;
constexpr int kLeastStages = 2;  // of a ring
constexpr int kMostChunks = 24;
constexpr int kWarpBuffer = 8 * 1024;  // bytes of floats that a producer warp has in flight
constexpr int kSlotColumns = kSwizzleBytes / static_cast<int>(sizeof(float));
constexpr int kSumSlotColumns = 2 * kSlotColumns;  // where addends have 16 bits
constexpr int kGroupThreads = 128;                 // of a warpgroup
constexpr int kGroupWarps = kGroupThreads / kWarp;
static_assert(kChunk == kSwizzleBytes, "a stage holds a chunk of every row");

// Division of the work.
struct WgmmaPlan {
  int chunks;
  int stages;  // of a ring
  int64_t row_tiles;
  int column_tiles;
  bool vectors;      // float rows consist of whole aligned vectors
  bool buffered;     // and are copied to shared memory before they are quantised
  bool staged;       // addends come through the ring
  int slot_columns;  // outputs of a slot
  bool lines;        // float results are written as whole lines
};

struct WgmmaMaps {
  CUtensorMap weights;
  CUtensorMap rows;    // of codes
  CUtensorMap addend;  // if staged; two 16-bit sums count as a word
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

// Row tiles of a block: first, first + stride, ... below end. Consumers take them in turn.
struct BlockTiles {
  int64_t first;
  int64_t stride;
  int64_t end;

  __device__ __forceinline__ explicit BlockTiles(const WgmmaPlan& plan)
      : first(blockIdx.x / plan.column_tiles),
        stride(gridDim.x / plan.column_tiles),
        end(plan.row_tiles) {}
};

// A block's shared memory.
template <int kColumns, int kRings>
struct WgmmaMemory {
  unsigned char* weights;  // [chunks][kColumns][128], 1024-byte aligned
  unsigned char* stages;   // of all rings
  WgmmaTail<kColumns>& tail;
  float* centres;          // [chunks * 128], then inverse steps likewise, if rows are floats
  unsigned char* buffers;  // [producer warps][kWarpBuffer], if buffered
  int slots;               // of staged addends per tile

  __device__ __forceinline__ WgmmaMemory(unsigned char* raw, const WgmmaPlan& plan, int slots)
      : weights(raw + (0u - shared_address(raw)) % 1024),  // the compiler sees shared memory
        stages(weights + plan.chunks * kColumns * kSwizzleBytes),
        tail(*reinterpret_cast<WgmmaTail<kColumns>*>(stages + kRings * plan.stages * kStageBytes)),
        centres(reinterpret_cast<float*>(&tail + 1)),
        buffers(reinterpret_cast<unsigned char*>(centres + 2 * plan.chunks * kChunk)),
        slots(slots) {}

  __device__ __forceinline__ StageRing ring(int consumer, const WgmmaPlan& plan) const {
    const int first = consumer * plan.stages;
    return {stages + first * kStageBytes, tail.full + first, tail.empty + first, plan.stages};
  }
};

}  // namespace bitgnn::cuda::int8
