// Products of 8-bit rows with mma.sync, from Ampere on: a block computes a tile of outputs, chunk
// by chunk of 128 features, from codes or from floats that it quantises on the way to shared
// memory. Bound by the tensor cores, or by reading the rows if there are few outputs.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/mma_s8.cuh"
#include "core/cuda/shared_memory.h"
#include "int8/cuda/epilogue.cuh"
#include "int8/cuda/quantise.cuh"

namespace bitgnn::cuda::int8 {

// Warps of 16 kFragments rows by kWarpColumns outputs.
template <int kRowWarps_, int kColumnWarps_, int kFragments_, int kWarpColumns_>
struct MmaTile {
  static constexpr int kRowWarps = kRowWarps_;
  static constexpr int kColumnWarps = kColumnWarps_;
  static constexpr int kFragments = kFragments_;
  static constexpr int kWarpColumns = kWarpColumns_;
  static constexpr int kWarps = kRowWarps * kColumnWarps;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kRows = kRowWarps * kFragments * kMmaRows;
  static constexpr int kColumns = kColumnWarps * kWarpColumns;
  static constexpr int kBatches = kRows / kWarps / kBatch;  // of float rows that a warp quantises
  static_assert(kBatches * kWarps * kBatch == kRows, "warps take whole batches of rows");
};

using LargeTile = MmaTile<4, 2, 2, 64>;  // 128 rows by 128 outputs
using SmallTile = MmaTile<4, 1, 1, 32>;  // 64 rows by 32 outputs

constexpr int kChunkWords = kChunk / 4;
constexpr int kChunkPitch = tile_pitch(kChunkWords);  // in words
constexpr int kChunkSteps = 4;                        // products of 32 features

template <class Tile>
struct MmaShared {
  alignas(16) uint32_t rows[2][Tile::kRows * kChunkPitch];
  uint32_t weights[2][Tile::kColumns * kChunkPitch];
  bmm::ColumnTable<Tile::kWarpColumns> columns[Tile::kColumnWarps];
};

// Starts copies of a chunk of kCount rows of codes from `first` on; bytes that do not exist are 0.
template <int kCount, int kThreads>
__device__ __forceinline__ void copy_codes(uint32_t* to, const int8_t* from, int64_t first,
                                           int64_t rows, int pitch, int chunk) {
  constexpr int kUnits = kChunk / 16;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kCount * kUnits; i += kThreads) {
    const int64_t row = first + i / kUnits;
    const int column = chunk * kChunk + i % kUnits * 16;
    const bool exists = row < rows && column < pitch;
    copy_async_16(to + i / kUnits * kChunkPitch + i % kUnits * 4,
                  reinterpret_cast<const int32_t*>(exists ? from + row * pitch + column : from),
                  exists ? 16 : 0);
  }
}

// The lane's sums of a warp's fragments.
template <class Tile>
using MmaSums = int32_t[Tile::kFragments][Tile::kWarpColumns / 2];

// Multiplies the steps of a chunk from kFirst to kLast - 1.
template <class Tile, int kFirst, int kLast>
__device__ __forceinline__ void multiply_steps(MmaSums<Tile>& sum, const uint32_t* rows,
                                               const uint32_t* weights, int lane) {
#pragma unroll
  for (int step = kFirst; step < kLast; ++step) {
    uint32_t a[Tile::kFragments][4];
    uint32_t b[Tile::kWarpColumns / kMmaColumns][2];
#pragma unroll
    for (int i = 0; i < Tile::kFragments; ++i)
      load_row_fragment(a[i], rows + i * kMmaRows * kChunkPitch + step * kMmaWords, kChunkPitch,
                        lane);
#pragma unroll
    for (int j = 0; j < Tile::kWarpColumns / kMmaColumns; j += 2)
      load_column_fragments(b[j], b[j + 1],
                            weights + j * kMmaColumns * kChunkPitch + step * kMmaWords, kChunkPitch,
                            lane);
#pragma unroll
    for (int i = 0; i < Tile::kFragments; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kWarpColumns / kMmaColumns; ++j)
        mma_s8(*reinterpret_cast<int32_t (*)[4]>(&sum[i][j * 4]), a[i], b[j]);
    }
  }
}

// Rows that are codes: copied as they are.
struct CodeSource {
  template <class Tile>
  struct Loader {
    const Int8BmmArgs& a;
    int64_t first_row;
    int pitch;

    __device__ __forceinline__ Loader(const Int8BmmArgs& args, int64_t first)
        : a(args), first_row(first), pitch(static_cast<int>(int8_pitch(args.size))) {}
    __device__ __forceinline__ void start(uint32_t* to, int chunk) {
      copy_codes<Tile::kRows, Tile::kThreads>(to, a.codes, first_row, a.rows, pitch, chunk);
    }
    __device__ __forceinline__ void load(int, int) {}
    __device__ __forceinline__ void store(uint32_t*, int) {}
  };
};

// Rows that are floats: each warp quantises batches of its own rows.
template <class T, bool kVector>
struct FloatSource {
  template <class Tile>
  struct Loader {
    const Int8PackArgs pack;
    int64_t first_row;
    int warp, lane;
    LaneValues<T, kVector> values[kBatch];
    LaneScales scales;

    __device__ __forceinline__ Loader(const Int8BmmArgs&, const Int8PackArgs& p, int64_t first)
        : pack(p),
          first_row(first),
          warp(static_cast<int>(threadIdx.x) / kWarp),
          lane(static_cast<int>(threadIdx.x) % kWarp) {}
    __device__ __forceinline__ int batch_row(int batch) const {
      return (warp * Tile::kBatches + batch) * kBatch;
    }
    __device__ __forceinline__ void start(uint32_t*, int chunk) {
      scales.load<kVector>(pack, chunk, lane);
    }
    __device__ __forceinline__ void load(int chunk, int batch) {
      load_batch(values, pack, first_row + batch_row(batch), chunk, lane);
    }
    __device__ __forceinline__ void store(uint32_t* to, int batch) {
      auto* row = reinterpret_cast<unsigned char*>(to + batch_row(batch) * kChunkPitch);
#pragma unroll
      for (int r = 0; r < kBatch; ++r)
        store_codes<kVector>(row + r * kChunkPitch * 4, lane_codes(values[r], scales), lane, 0);
    }
  };
};

template <class Source, class Tile, Int8Output kOutput>
__global__ void __launch_bounds__(Tile::kThreads)
    int8_mma_kernel(const __grid_constant__ Int8BmmArgs a,
                    const __grid_constant__ Int8PackArgs pack, const int column_tiles) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<MmaShared<Tile>*>(memory);
  constexpr bool kFloats = !std::is_same_v<Source, CodeSource>;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp, lane = thread % kWarp;
  const int row_warp = warp / Tile::kColumnWarps, column_warp = warp % Tile::kColumnWarps;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) / column_tiles * Tile::kRows;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) % column_tiles * Tile::kColumns;
  const auto pitch = static_cast<int>(int8_pitch(a.size));
  const auto chunks = static_cast<int>((a.size + kChunk - 1) / kChunk);
  using Loader = typename Source::template Loader<Tile>;
  let_next_start();
  wait_for_previous();
  Loader loader = [&] {
    if constexpr (kFloats)
      return Loader(a, pack, first_row);
    else
      return Loader(a, first_row);
  }();
  const auto start = [&](int chunk) {
    loader.start(shared.rows[chunk % 2], chunk);
    copy_codes<Tile::kColumns, Tile::kThreads>(shared.weights[chunk % 2], a.weight, first_column,
                                               a.out_features, pitch, chunk);
    commit_copies();
  };
  if (chunks > 0) {
    start(0);
#pragma unroll
    for (int batch = 0; batch < Tile::kBatches; ++batch) {
      loader.load(0, batch);
      loader.store(shared.rows[0], batch);
    }
  }
  for (int i = 0; i < Tile::kColumnWarps; ++i)
    load_columns<kOutput>(shared.columns[i], a, first_column + i * Tile::kWarpColumns, thread,
                          Tile::kThreads);
  wait_copies<0>();
  __syncthreads();

  MmaSums<Tile> sum = {};
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const uint32_t* rows =
        shared.rows[chunk % 2] + row_warp * Tile::kFragments * kMmaRows * kChunkPitch;
    const uint32_t* weights =
        shared.weights[chunk % 2] + column_warp * Tile::kWarpColumns * kChunkPitch;
    uint32_t* next = shared.rows[(chunk + 1) % 2];
    const bool more = chunk + 1 < chunks;
    static_assert(Tile::kBatches == 2, "batches of rows share the steps of a chunk");
    if (more) {
      start(chunk + 1);
      loader.load(chunk + 1, 0);
    }
    multiply_steps<Tile, 0, kChunkSteps / 2>(sum, rows, weights, lane);
    if (more) {
      loader.store(next, 0);
      loader.load(chunk + 1, 1);
    }
    multiply_steps<Tile, kChunkSteps / 2, kChunkSteps>(sum, rows, weights, lane);
    if (more) loader.store(next, 1);
    wait_copies<0>();
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < Tile::kFragments; ++i)
    store_slab<kOutput>(a, shared.columns[column_warp], sum[i],
                        first_row + (row_warp * Tile::kFragments + i) * kMmaRows,
                        first_column + column_warp * Tile::kWarpColumns, lane);
}

template <class Source, class Tile, Int8Output kOutput>
cudaError_t launch_int8_mma(const Int8BmmArgs& a, const Context& context) {
  const auto kernel = int8_mma_kernel<Source, Tile, kOutput>;
  constexpr auto kBytes = static_cast<int64_t>(sizeof(MmaShared<Tile>));
  const cudaError_t status = grant_shared_memory(kernel, kBytes);
  if (status != cudaSuccess) return status;
  const int64_t column_tiles = ceil_div(a.out_features, Tile::kColumns);
  const int64_t blocks = ceil_div(a.rows, Tile::kRows) * column_tiles;
  const Int8PackArgs pack = a.pack != nullptr ? *a.pack : Int8PackArgs{};
  return launch_dependent(kernel, grid_size(blocks), Tile::kThreads, static_cast<size_t>(kBytes),
                          context, a, pack, static_cast<int>(column_tiles));
}

}  // namespace bitgnn::cuda::int8
