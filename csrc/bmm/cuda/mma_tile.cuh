// Products of a tile in shared memory, on b1 tensor cores or with plain instructions.
#pragma once

#include "bmm/cuda/epilogue.cuh"
#include "bmm/cuda/output.cuh"

namespace bitgnn::cuda::bmm {

// The unit that multiplies a tile: b1 tensor cores, or LOP3 and POPC.
enum class BmmUnit : int { kTensor, kLogic };

// Tile of one block and its split over warps.
template <int kBlockRows, int kBlockColumns, int kWarpRows, int kWarpColumns_, int kStages>
struct MmaTile {
  static constexpr int kRows = kBlockRows;
  static constexpr int kColumns = kBlockColumns;
  static constexpr int kWarpColumns = kWarpColumns_;
  static constexpr int kRowFragments = kWarpRows / kMmaRows;
  static constexpr int kColumnFragments = kWarpColumns / kMmaColumns;
  static constexpr int kRowWarps = kBlockRows / kWarpRows;
  static constexpr int kColumnWarps = kBlockColumns / kWarpColumns;
  static constexpr int kThreads = kRowWarps * kColumnWarps * kWarp;
  static constexpr int kDepth = kStages;
  static_assert(kWarpColumns % 32 == 0, "a warp writes whole words");
};

constexpr int kMaxStageWords = 32;  // words of a row per stage; a power of two of at least 8

// Tables that the epilogue of a block reads.
template <class Tile>
struct MmaTables {
  ColumnTable<Tile::kWarpColumns> columns[Tile::kColumnWarps];
  int32_t row_counts[Tile::kRows];
};

// Popcounts of a block's rows and columns on tensor cores; warps that share rows or columns split
// them.
template <class Tile, BmmUnit kUnit>
struct MmaCounts {
  static constexpr int kRowShare =
      (Tile::kRowFragments + Tile::kColumnWarps - 1) / Tile::kColumnWarps;
  static constexpr int kColumnShare =
      (Tile::kColumnFragments + Tile::kRowWarps - 1) / Tile::kRowWarps;
  int32_t rows[kRowShare][4] = {};
  int32_t columns[kColumnShare][4] = {};

  __device__ __forceinline__ void add(const uint32_t (&x)[Tile::kRowFragments][4],
                                      const uint32_t (&w)[Tile::kColumnFragments][2], int row_warp,
                                      int column_warp) {
    constexpr uint32_t kOnes = 0xffffffffu;
    const uint32_t row_ones[4] = {kOnes, kOnes, kOnes, kOnes};
    const uint32_t column_ones[2] = {kOnes, kOnes};
#pragma unroll
    for (int i = 0; i < Tile::kRowFragments; ++i) {
      if (i % Tile::kColumnWarps == column_warp)
        mma_and_popc(rows[i / Tile::kColumnWarps], x[i], column_ones);
    }
#pragma unroll
    for (int j = 0; j < Tile::kColumnFragments; ++j) {
      if (j % Tile::kRowWarps == row_warp)
        mma_and_popc(columns[j / Tile::kRowWarps], row_ones, w[j]);
    }
  }

  template <BmmOutput kOutput>
  __device__ __forceinline__ void share(MmaTables<Tile>& to, int row_warp, int column_warp,
                                        int lane) const {
    const int group = fragment_group(lane);
    const int quad = fragment_quad(lane);
#pragma unroll
    for (int i = 0; i < Tile::kRowFragments; ++i) {
      if (i % Tile::kColumnWarps != column_warp || quad != 0) continue;
      int32_t* at = to.row_counts + (row_warp * Tile::kRowFragments + i) * kMmaRows + group;
      at[0] = rows[i / Tile::kColumnWarps][0];
      at[8] = rows[i / Tile::kColumnWarps][2];
    }
#pragma unroll
    for (int j = 0; j < Tile::kColumnFragments; ++j) {
      if (j % Tile::kRowWarps != row_warp || group != 0) continue;
      int32_t* at = to.columns[column_warp].term + j * kMmaColumns + quad * 2;
      at[0] = column_term<kOutput>(columns[j / Tile::kRowWarps][0]);
      at[1] = column_term<kOutput>(columns[j / Tile::kRowWarps][1]);
    }
  }
};

// The same with plain instructions: each thread counts one row or column of the stages.
template <class Tile>
struct MmaCounts<Tile, BmmUnit::kLogic> {
  static_assert(Tile::kThreads == Tile::kRows + Tile::kColumns, "one thread a row of a stage");
  int32_t count = 0;

  __device__ __forceinline__ void add(const uint32_t* stage, int pitch, int width) {
    const uint32_t* from = stage + threadIdx.x * pitch;
    for (int word = 0; word < width; ++word) count += __popc(from[word]);
  }

  template <BmmOutput kOutput>
  __device__ __forceinline__ void share(MmaTables<Tile>& to, int, int, int) const {
    const int column = static_cast<int>(threadIdx.x) - Tile::kRows;
    if (column < 0) {
      to.row_counts[threadIdx.x] = count;
    } else {
      to.columns[column / Tile::kWarpColumns].term[column % Tile::kWarpColumns] =
          column_term<kOutput>(count);
    }
  }
};

template <class Tile>
using MmaSums = int32_t[Tile::kRowFragments][Tile::kWarpColumns / 2];

// Multiplies one stage on tensor cores; `x` and `w` are the warp's parts of the stage.
template <class Tile>
__device__ __forceinline__ void multiply_stage(MmaSums<Tile>& sum,
                                               MmaCounts<Tile, BmmUnit::kTensor>& counts,
                                               const uint32_t* x, const uint32_t* w, int pitch,
                                               int steps, int row_warp, int column_warp, int lane) {
#pragma unroll
  for (int step = 0; step < kMaxStageWords / kMmaWords; ++step) {
    if (step >= steps) break;
    uint32_t a[Tile::kRowFragments][4];
    uint32_t b[Tile::kColumnFragments][2];
#pragma unroll
    for (int i = 0; i < Tile::kRowFragments; ++i)
      load_row_fragment(a[i], x + i * kMmaRows * pitch + step * kMmaWords, pitch, lane);
#pragma unroll
    for (int j = 0; j < Tile::kColumnFragments; j += 2)
      load_column_fragments(b[j], b[j + 1], w + j * kMmaColumns * pitch + step * kMmaWords, pitch,
                            lane);
#pragma unroll
    for (int i = 0; i < Tile::kRowFragments; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kColumnFragments; ++j)
        mma_and_popc(*reinterpret_cast<int32_t (*)[4]>(&sum[i][j * 4]), a[i], b[j]);
    }
    counts.add(a, b, row_warp, column_warp);
  }
}

// The same with plain instructions.
template <class Tile>
__device__ __forceinline__ void multiply_stage(MmaSums<Tile>& sum,
                                               MmaCounts<Tile, BmmUnit::kLogic>&, const uint32_t* x,
                                               const uint32_t* w, int pitch, int steps, int, int,
                                               int lane) {
  const uint32_t* rows = x + fragment_group(lane) * pitch;
  const uint32_t* columns = w + fragment_quad(lane) * 2 * pitch;
  for (int word = 0; word < steps * kMmaWords; word += 4) {
    uint4 a[Tile::kRowFragments][2];
#pragma unroll
    for (int i = 0; i < Tile::kRowFragments * 2; ++i)
      a[i / 2][i % 2] = *reinterpret_cast<const uint4*>(rows + i * 8 * pitch + word);
#pragma unroll
    for (int j = 0; j < Tile::kColumnFragments * 2; ++j) {
      const int at = j / 2 * kMmaColumns + j % 2;
      const uint4 b = *reinterpret_cast<const uint4*>(columns + at * pitch + word);
#pragma unroll
      for (int i = 0; i < Tile::kRowFragments * 2; ++i) {
        const uint4 v = a[i / 2][i % 2];
        sum[i / 2][j / 2 * 4 + i % 2 * 2 + j % 2] +=
            __popc(v.x & b.x) + __popc(v.y & b.y) + __popc(v.z & b.z) + __popc(v.w & b.w);
      }
    }
  }
}

}  // namespace bitgnn::cuda::bmm
