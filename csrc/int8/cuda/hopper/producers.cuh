// Producers of the warpgroup product of 8-bit rows: they fill the ring with codes, copied by the
// TMA, or quantised from floats.
#pragma once

#include "int8/cuda/hopper/stages.cuh"

namespace bitgnn::cuda::int8 {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Starts the copy of a chunk of the block's weights; one thread.
template <int kColumns, int kRings>
__device__ __forceinline__ void copy_weights(const WgmmaMemory<kColumns, kRings>& shared,
                                             const CUtensorMap& map, int chunk, int64_t column) {
  constexpr int kBytes = kColumns * kSwizzleBytes;
  const uint32_t barrier = shared_address(shared.tail.weights + chunk);
  barrier_expect(barrier, kBytes);
  copy_tile(shared_address(shared.weights + chunk * kBytes), map, chunk * kSwizzleWords,
            static_cast<int>(column), barrier);
}

// Copies a consumer's codes and addends and, besides the first codes, the weights; one thread.
template <int kColumns, int kRings>
__device__ __forceinline__ void copy_rows(const WgmmaMemory<kColumns, kRings>& shared,
                                          const WgmmaPlan& plan, const WgmmaMaps& maps,
                                          int64_t column, bool adds, int consumer) {
  StageRing ring = shared.ring(consumer, plan);
  const auto copy = [&](const CUtensorMap& map, int at_column, int64_t tile) {
    barrier_expect(ring.full(), kStageBytes);
    copy_tile(shared_address(ring.stage()), map, at_column, static_cast<int>(tile) * kWgmmaRows,
              ring.full());
  };
  for (int64_t tile = plan.first() + consumer * plan.stride(); tile < plan.row_tiles;
       tile += kRings * plan.stride()) {
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      if (tile == plan.first()) copy_weights(shared, maps.weights, chunk, column);
      ring.wait_empty();
      copy(maps.rows, chunk * kSwizzleWords, tile);
      ring.advance();
    }
    for (int slot = 0; slot < shared.slots; ++slot) {
      ring.wait_empty();
      if (adds)
        copy(maps.addend, static_cast<int>(column) + slot * kSlotColumns, tile);
      else
        barrier_arrive(ring.full());
      ring.advance();
    }
  }
}

// Quantises chunks of floats: each of eight warps takes eight rows, whose next values it loads
// before it rounds the current ones.
template <class T, bool kVector, int kColumns>
__device__ __forceinline__ void quantise_rows(const WgmmaMemory<kColumns, 1>& shared,
                                              const WgmmaPlan& plan, const Int8PackArgs& pack,
                                              int warp, int lane) {
  static_assert(kBatch == 8, "rows of a batch differ in their swizzle");
  const float* inverse_steps = shared.centres + plan.chunks * kChunk;
  StageRing ring = shared.ring(0, plan);
  int64_t next_tile = plan.first();
  int next_chunk = 0;
  const auto load_next = [&](LaneValues<T, kVector>(&to)[kBatch]) {
    load_batch(to, pack, next_tile * kWgmmaRows + warp * kBatch, next_chunk, lane);
    if (++next_chunk == plan.chunks) {
      next_chunk = 0;
      next_tile += plan.stride();
    }
  };
  int chunk = 0;
  const auto store = [&](const LaneValues<T, kVector>(&values)[kBatch]) {
    LaneScales scales;
    scales.read<kVector>(shared.centres, inverse_steps, chunk, lane);
    ring.wait_empty();
    unsigned char* rows = ring.stage() + warp * kBatch * kSwizzleBytes;
#pragma unroll
    for (int r = 0; r < kBatch; ++r)
      store_codes<kVector>(rows + r * kSwizzleBytes, lane_codes(values[r], scales), lane, r);
    wgmma_write_fence();
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.full());
    ring.advance();
    if (++chunk < plan.chunks) return;
    chunk = 0;
    for (int slot = 0; slot < shared.slots; ++slot) {
      ring.wait_empty();
      if (lane == 0) barrier_arrive(ring.full());
      ring.advance();
    }
  };
  LaneValues<T, kVector> even[kBatch], odd[kBatch];
  load_next(even);
  // Loads past the last tile find no rows.
  for (int64_t tile = plan.first(); tile < plan.row_tiles;) {
    load_next(odd);
    store(even);
    if (chunk == 0) tile += plan.stride();
    if (tile >= plan.row_tiles) break;
    load_next(even);
    store(odd);
    if (chunk == 0) tile += plan.stride();
  }
}

#endif

}  // namespace bitgnn::cuda::int8
