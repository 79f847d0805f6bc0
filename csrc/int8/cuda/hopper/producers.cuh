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

// Copies a consumer's codes and staged addends and, besides the first codes, the weights; one
// thread.
template <int kColumns, int kRings>
__device__ __forceinline__ void copy_rows(const WgmmaMemory<kColumns, kRings>& shared,
                                          const WgmmaPlan& plan, const WgmmaMaps& maps,
                                          int64_t column, int consumer) {
  const BlockTiles tiles(plan);
  StageRing ring = shared.ring(consumer, plan);
  const auto copy = [&](const CUtensorMap& map, int at_column, int64_t tile) {
    barrier_expect(ring.full(), kStageBytes);
    copy_tile(shared_address(ring.stage()), map, at_column, static_cast<int>(tile) * kWgmmaRows,
              ring.full());
  };
  for (int64_t tile = tiles.first + consumer * tiles.stride; tile < tiles.end;
       tile += kRings * tiles.stride) {
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      if (tile == tiles.first) copy_weights(shared, maps.weights, chunk, column);
      ring.wait_empty();
      copy(maps.rows, chunk * kSwizzleWords, tile);
      ring.advance();
    }
    const int first_word = static_cast<int>(column) * kSlotColumns / plan.slot_columns;
    for (int slot = 0; slot < shared.slots; ++slot) {
      ring.wait_empty();
      copy(maps.addend, first_word + slot * kSlotColumns, tile);
      ring.advance();
    }
  }
}

// A block's chunks in the order of its tiles.
struct ChunkCursor {
  int64_t tile;
  int chunk = 0;

  __device__ __forceinline__ void advance(const BlockTiles& tiles, int chunks) {
    if (++chunk < chunks) return;
    chunk = 0;
    tile += tiles.stride;
  }
};

// A warp's eight rows of a chunk in its buffer: every lane copies and reads units of 16 bytes of
// its own. Loads to registers would pass through L1, which is too small besides the weights.
template <class T>
struct BufferedBatch {
  static constexpr int kUnit = 16 / static_cast<int>(sizeof(T));  // values of a lane
  static constexpr int kRowLanes = kChunk / kUnit;
  static constexpr int kRows = kWarp / kRowLanes;  // at once
  static constexpr int kUnits = kBatch / kRows;    // of a lane
  static constexpr int kBytes = kUnits * kWarp * 16;
  static constexpr int kSlots = kWarpBuffer / kBytes;

  // Starts copies, of zeros where there are no values.
  static __device__ __forceinline__ void copy(unsigned char* slot, const Int8PackArgs& a,
                                              int64_t first_row, int chunk, int lane) {
    const int column = chunk * kChunk + lane % kRowLanes * kUnit;
    const int64_t row = first_row + lane / kRowLanes;
    const bool exists = column < a.size;
    const T* from = static_cast<const T*>(a.x) + row * a.row_stride + column;
    const auto rows = static_cast<int>(min(a.rows - row, int64_t{kBatch}));
    auto* to = reinterpret_cast<uint32_t*>(slot + lane * 16);
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const bool copies = exists && i * kRows < rows;
      copy_async_16(to + i * kWarp * 4, static_cast<const int32_t*>(copies ? from : a.x),
                    copies ? 16 : 0);
      from += kRows * a.row_stride;
    }
    commit_copies();
  }

  // Quantises what was copied, with the lane's scales of the chunk: four codes a word.
  static __device__ __forceinline__ void quantise(uint32_t (&codes)[kUnits][kUnit / 4],
                                                  const unsigned char* slot, const float* centres,
                                                  const float* inverse_steps, int lane) {
    const int first = lane % kRowLanes * kUnit;
    float centre[kUnit], inverse_step[kUnit];
#pragma unroll
    for (int k = 0; k < kUnit; k += 4) {
      *reinterpret_cast<float4*>(centre + k) =
          *reinterpret_cast<const float4*>(centres + first + k);
      *reinterpret_cast<float4*>(inverse_step + k) =
          *reinterpret_cast<const float4*>(inverse_steps + first + k);
    }
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const auto unit = *reinterpret_cast<const uint4*>(slot + (i * kWarp + lane) * 16);
      const uint32_t raw[4] = {unit.x, unit.y, unit.z, unit.w};
      int32_t level[kUnit];
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        float value;
        if constexpr (sizeof(T) == 4)
          value = __uint_as_float(raw[k]);
        else
          value = half_value<T>(raw[k / 2] >> (k % 2 * 16));
        level[k] = rounded_level(value, centre[k], inverse_step[k]);
      }
#pragma unroll
      for (int k = 0; k < kUnit; k += 4)
        codes[i][k / 4] = saturated_bytes(level[k], level[k + 1], level[k + 2], level[k + 3]);
    }
  }

  // Stores the codes in the warp's rows of a stage.
  static __device__ __forceinline__ void store(unsigned char* rows,
                                               const uint32_t (&codes)[kUnits][kUnit / 4],
                                               int lane) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const int row = i * kRows + lane / kRowLanes;
      unsigned char* to = rows + row * kSwizzleBytes + (lane % kRowLanes * kUnit ^ row * 16);
      if constexpr (kUnit == 4)
        *reinterpret_cast<uint32_t*>(to) = codes[i][0];
      else
        *reinterpret_cast<uint2*>(to) = make_uint2(codes[i][0], codes[i][1]);
    }
  }
};

// Quantises chunks of floats that are copied to buffers some chunks ahead: each of eight warps
// takes eight rows. `start` returns once the scales are there.
template <class T, int kColumns, class Start>
__device__ __forceinline__ void quantise_buffered(const WgmmaMemory<kColumns, 1>& shared,
                                                  const WgmmaPlan& plan, const Int8PackArgs& pack,
                                                  int warp, int lane, const Start& start) {
  using Batch = BufferedBatch<T>;
  const BlockTiles tiles(plan);
  unsigned char* const buffer = shared.buffers + warp * kWarpBuffer;
  StageRing ring = shared.ring(0, plan);
  ChunkCursor now{tiles.first}, next{tiles.first};
  const auto copy_next = [&](int slot) {
    Batch::copy(buffer + slot * Batch::kBytes, pack, next.tile * kWgmmaRows + warp * kBatch,
                next.chunk, lane);
    next.advance(tiles, plan.chunks);
  };
#pragma unroll
  for (int slot = 0; slot < Batch::kSlots; ++slot) copy_next(slot);
  start();
  for (int slot = 0; now.tile < tiles.end; slot = (slot + 1) % Batch::kSlots) {
    wait_copies<Batch::kSlots - 1>();
    const float* centres = shared.centres + now.chunk * kChunk;
    uint32_t codes[Batch::kUnits][Batch::kUnit / 4];
    Batch::quantise(codes, buffer + slot * Batch::kBytes, centres, centres + plan.chunks * kChunk,
                    lane);
    copy_next(slot);
    ring.wait_empty();
    Batch::store(ring.stage() + warp * kBatch * kSwizzleBytes, codes, lane);
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.full());
    ring.advance();
    now.advance(tiles, plan.chunks);
  }
  wait_copies<0>();
}

// The same for rows that are loaded to registers one chunk ahead.
template <class T, bool kVector, int kColumns>
__device__ __forceinline__ void quantise_rows(const WgmmaMemory<kColumns, 1>& shared,
                                              const WgmmaPlan& plan, const Int8PackArgs& pack,
                                              int warp, int lane) {
  static_assert(kBatch == 8, "rows of a batch differ in their swizzle");
  const float* inverse_steps = shared.centres + plan.chunks * kChunk;
  const BlockTiles tiles(plan);
  StageRing ring = shared.ring(0, plan);
  ChunkCursor now{tiles.first}, next{tiles.first};
  const auto load_next = [&](LaneValues<T, kVector>(&to)[kBatch]) {
    load_batch(to, pack, next.tile * kWgmmaRows + warp * kBatch, next.chunk, lane);
    next.advance(tiles, plan.chunks);
  };
  const auto store = [&](const LaneValues<T, kVector>(&values)[kBatch]) {
    LaneScales scales;
    scales.read<kVector>(shared.centres, inverse_steps, now.chunk, lane);
    ring.wait_empty();
    unsigned char* rows = ring.stage() + warp * kBatch * kSwizzleBytes;
#pragma unroll
    for (int r = 0; r < kBatch; ++r)
      store_codes<kVector>(rows + r * kSwizzleBytes, lane_codes(values[r], scales), lane, r);
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.full());
    ring.advance();
    now.advance(tiles, plan.chunks);
  };
  LaneValues<T, kVector> even[kBatch], odd[kBatch];
  load_next(even);
  // Loads past the last tile find no rows.
  while (true) {
    load_next(odd);
    store(even);
    if (now.tile >= tiles.end) break;
    load_next(even);
    store(odd);
    if (now.tile >= tiles.end) break;
  }
}

#endif

}  // namespace bitgnn::cuda::int8
