// Product of packed rows with mma.sync b1 tensor cores or, where there are none, LOP3 and POPC:
// tiles pass through a ring of shared-memory stages filled by cp.async.
#pragma once

#include <algorithm>

#include "bmm/cuda/mma_tile.cuh"
#include "bmm/cuda/output.cuh"
#include "core/cuda/dependent_launch.cuh"

namespace bitgnn::cuda::bmm {

// How the launcher partitions the product.
struct MmaPlan {
  int words;        // of a row
  int chunk_shift;  // log2 of the copies that fill one row of a stage
};

template <int kVector>
__device__ __forceinline__ void copy_async(uint32_t* to, const int32_t* from, bool exists) {
  const int bytes = exists ? kVector * 4 : 0;
  if constexpr (kVector == 4) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;\n" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "n"(kVector * 4)
                 : "memory");
  }
}

// Loads one stage: kRows rows of the source from `row`, over the stage's width in words from
// `word`. Words out of range become zero, which changes no count.
template <int kRows, int kThreads, int kVector>
__device__ __forceinline__ void load_stage(uint32_t* to, int pitch, const int32_t* from,
                                           int64_t row, int64_t rows, int word,
                                           const MmaPlan& plan) {
  const int first = static_cast<int>(threadIdx.x) >> plan.chunk_shift;
  const int at_word = (static_cast<int>(threadIdx.x) & ((1 << plan.chunk_shift) - 1)) * kVector;
  const int step = kThreads >> plan.chunk_shift;
  const bool inside = word + at_word < plan.words;
  const int left = static_cast<int>(min(int64_t{kRows}, rows - row));
  const int32_t* source = from + (row + first) * plan.words + word + at_word;
  const int64_t source_step = static_cast<int64_t>(step) * plan.words;
  to += first * pitch + at_word;
#pragma unroll 4
  for (int at_row = first; at_row < kRows; at_row += step) {
    const bool exists = inside && at_row < left;
    copy_async<kVector>(to, exists ? source : from, exists);
    source += source_step;
    to += step * pitch;
  }
}

template <class Tile, BmmUnit kUnit, BmmOutput kOutput, int kVector>
__global__ void __launch_bounds__(Tile::kThreads)
    bmm_mma_kernel(const BmmArgs a, const MmaPlan plan) {
  extern __shared__ __align__(16) uint32_t stages[];
  __shared__ MmaTables<Tile> tables;
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int row_warp = warp / Tile::kColumnWarps;
  const int column_warp = warp % Tile::kColumnWarps;
  const int warp_row = row_warp * Tile::kRowFragments * kMmaRows;
  const int warp_column = column_warp * Tile::kWarpColumns;

  const int width = kVector << plan.chunk_shift;
  const int pitch = width + 4;
  const int stage_words = (Tile::kRows + Tile::kColumns) * pitch;
  const int blocks = (plan.words + width - 1) / width;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * Tile::kRows;
  const int64_t column =
      (static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y) * Tile::kColumns;

  const auto load = [&](int block, int stage) {
    if (block < blocks) {
      uint32_t* to = stages + stage * stage_words;
      load_stage<Tile::kRows, Tile::kThreads, kVector>(to, pitch, a.x, row, a.rows, block * width,
                                                       plan);
      load_stage<Tile::kColumns, Tile::kThreads, kVector>(
          to + Tile::kRows * pitch, pitch, a.w, column, a.out_features, block * width, plan);
    }
    commit_copies();
  };
  let_next_start();
  wait_for_previous();
  if (column >= a.out_features) return;
  for (int s = 0; s < Tile::kDepth - 1; ++s) load(s, s);
#pragma unroll
  for (int first = 0; first < Tile::kColumns; first += Tile::kThreads) {
    const int at = first + static_cast<int>(threadIdx.x);
    if (at >= Tile::kColumns) break;
    share_column<kOutput>(tables.columns[at / Tile::kWarpColumns], at % Tile::kWarpColumns,
                          load_column<kOutput>(a, column + at));
  }

  MmaSums<Tile> sum = {};
  MmaCounts<Tile, kUnit> counts;
  int stage = 0;
  for (int block = 0; block < blocks; ++block) {
    wait_copies<Tile::kDepth - 2>();
    __syncthreads();
    const int next = stage == 0 ? Tile::kDepth - 1 : stage - 1;
    load(block + Tile::kDepth - 1, next);
    const uint32_t* x = stages + stage * stage_words;
    const uint32_t* w = x + Tile::kRows * pitch;
    if constexpr (kUnit == BmmUnit::kLogic) counts.add(x, pitch, width);
    const int left = min(width, plan.words - block * width);
    multiply_stage<Tile>(sum, counts, x + warp_row * pitch, w + warp_column * pitch, pitch,
                         (left + kMmaWords - 1) / kMmaWords, row_warp, column_warp, lane);
    stage = stage + 1 == Tile::kDepth ? 0 : stage + 1;
  }

  auto* staged = reinterpret_cast<int32_t*>(stages) + warp * kStagedWords;
  counts.template share<kOutput>(tables, row_warp, column_warp, lane);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Tile::kRowFragments; ++i) {
    const int at = warp_row + i * kMmaRows;
    SlabRows rows;
    const int32_t* row_counts = tables.row_counts + at + fragment_group(lane);
    set_row_terms<kOutput>(rows, a, row_counts[0], row_counts[8]);
    if constexpr (needs_scales(kOutput)) load_row_scales(rows, a, row + at, lane);
    store_slab<kOutput, Tile::kWarpColumns>(slab_target<kOutput>(a, row + at, column + warp_column),
                                            tables.columns[column_warp], rows, sum[i], staged,
                                            lane);
  }
}

template <class Tile, BmmUnit kUnit, BmmOutput kOutput, int kVector>
cudaError_t launch_bmm_mma(const BmmArgs& args, const Context& context) {
  MmaPlan plan{};
  plan.words = static_cast<int>(words_for(args.size));
  // Blocks of 8.6 and 8.9 hold less than half of what those of 9.0 do.
  constexpr int kRowBytes = Tile::kDepth * (Tile::kRows + Tile::kColumns) * 4;
  const auto stage_bytes = [](int words) { return kRowBytes * (words + 4); };
  const int most_bytes =
      std::min(stage_bytes(kMaxStageWords),
               context.device.shared_bytes - static_cast<int>(sizeof(MmaTables<Tile>)));
  int width = kMmaWords;
  while (width < kMaxStageWords && width < plan.words && stage_bytes(2 * width) <= most_bytes)
    width *= 2;
  while (kVector << plan.chunk_shift < width) ++plan.chunk_shift;

  const int64_t blocks = ceil_div(plan.words, width);
  const int64_t stages = std::min<int64_t>(Tile::kDepth, blocks);
  const int64_t stage_words = stages * (Tile::kRows + Tile::kColumns) * (width + 4);
  const int64_t staged_words = writes_bits(kOutput) ? 0 : Tile::kThreads / kWarp * kStagedWords;
  const size_t bytes = static_cast<size_t>(std::max(stage_words, staged_words)) * sizeof(uint32_t);
  const auto kernel = bmm_mma_kernel<Tile, kUnit, kOutput, kVector>;
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_bytes);
  if (status != cudaSuccess) return status;
  constexpr int64_t kMostInY = 65535;
  const int64_t column_tiles = ceil_div(args.out_features, Tile::kColumns);
  const dim3 grid(grid_size(ceil_div(args.rows, Tile::kRows)),
                  grid_size(std::min(column_tiles, kMostInY)),
                  grid_size(ceil_div(column_tiles, kMostInY)));
  return launch_dependent(kernel, grid, Tile::kThreads, bytes, context, args, plan);
}

}  // namespace bitgnn::cuda::bmm
