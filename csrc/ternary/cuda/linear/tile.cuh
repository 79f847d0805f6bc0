// Packed ternary rows times +-1 weights with mma.sync: a block copies its rows' planes into shared
// memory while its weights go straight from global memory into registers, each word once per block.
// With the weights w in registers, their complement is one instruction, and one accumulator takes
// popc(w & pos) + popc(~w & neg). Bound by latency for small shapes, otherwise by reading weights.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/mma_b1.cuh"
#include "ternary/cuda/linear/tile.h"
#include "ternary/cuda/linear/tile_epilogue.cuh"

namespace bitgnn::cuda::ternary {

// Loads four words of a weight row. Words past its end meet zeros, so any readable words will do.
template <bool kVector>
__device__ __forceinline__ uint4 load_weights(const int32_t* row, int word, int words) {
  if constexpr (kVector) {
    return load_in_place(reinterpret_cast<const uint4*>(row + min(word, words - 4)));
  } else {
    uint32_t value[4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      value[k] = static_cast<uint32_t>(load_in_place(row + min(word + k, words - 1)));
    return make_uint4(value[0], value[1], value[2], value[3]);
  }
}

// Prefetches bytes from memory into L2, which is safe even while they are still being written.
__device__ __forceinline__ void prefetch_cache([[maybe_unused]] const void* from,
                                               [[maybe_unused]] int64_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(from),
               "r"(static_cast<uint32_t>(bytes))
               : "memory");
#endif
}

// A lane's weights: those of the 16 outputs of each of the warp's tiles, kStages chunks at a time.
template <class Tile, bool kVector>
struct WeightStages {
  const int32_t* row[Tile::kOutputTiles][2];
  uint4 words[Tile::kStages][Tile::kOutputTiles][2];

  __device__ __forceinline__ WeightStages(const TernaryBmmArgs& a, int row_words, int output,
                                          int group) {
    const int last = static_cast<int>(a.out_features) - 1;
#pragma unroll
    for (int i = 0; i < Tile::kOutputTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        row[i][half] =
            a.w + int64_t{min(output + i * kMmaRows + half * 8 + group, last)} * row_words;
    }
  }
  __device__ __forceinline__ void fetch(int stage, int chunk, int row_words, int quad) {
#pragma unroll
    for (int i = 0; i < Tile::kOutputTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        words[stage][i][half] =
            load_weights<kVector>(row[i][half], chunk * kChunkWords + quad * 4, row_words);
    }
  }
};

// Adds the products of one chunk to `sum`; `fragment` is the lane's position in the rows' groups.
template <class Tile, bool kVector>
__device__ __forceinline__ void multiply_chunk(
    int32_t (&sum)[Tile::kOutputTiles][Tile::kRowTiles][4],
    const uint4 (&weights)[Tile::kOutputTiles][2],
    const uint32_t* const (&fragment)[Tile::kRowTiles], int chunk) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint4 x[Tile::kRowTiles];
#pragma unroll
    for (int j = 0; j < Tile::kRowTiles; ++j)
      x[j] =
          *reinterpret_cast<const uint4*>(fragment[j] + chunk * kChunkPitch + half * kGroupWords);
#pragma unroll
    for (int i = 0; i < Tile::kOutputTiles; ++i) {
      const uint4 &low = weights[i][0], &high = weights[i][1];
      const uint32_t plus[4] = {half == 0 ? low.x : low.z, half == 0 ? high.x : high.z,
                                half == 0 ? low.y : low.w, half == 0 ? high.y : high.w};
      const uint32_t minus[4] = {~plus[0], ~plus[1], ~plus[2], ~plus[3]};
#pragma unroll
      for (int j = 0; j < Tile::kRowTiles; ++j) {
        const uint32_t pos[2] = {x[j].x, x[j].y};
        mma_and_popc(sum[i][j], plus, pos);
      }
#pragma unroll
      for (int j = 0; j < Tile::kRowTiles; ++j) {
        const uint32_t neg[2] = {x[j].z, x[j].w};
        mma_and_popc(sum[i][j], minus, neg);
      }
    }
  }
}

// Reduces sums across the kPartWarps warps that split a row's chunks: part t % kPartWarps sums up
// tile t. Afterwards a part's other tiles of `sum` are meaningless.
template <class Tile>
__device__ __forceinline__ void exchange_sums(
    int32_t (&sum)[Tile::kOutputTiles][Tile::kRowTiles][4], int4* exchanged, int part, int team,
    int lane) {
  constexpr int kParts = Tile::kPartWarps;
  const auto slot = [&](int p, int tile) {
    return exchanged + ((team * kParts + p) * Tile::kTiles + tile) * kWarp + lane;
  };
#pragma unroll
  for (int tile = 0; tile < Tile::kTiles; ++tile) {
    const int32_t* d = sum[tile / Tile::kRowTiles][tile % Tile::kRowTiles];
    if (tile % kParts != part) *slot(part, tile) = make_int4(d[0], d[1], d[2], d[3]);
  }
  __syncthreads();
#pragma unroll
  for (int tile = 0; tile < Tile::kTiles; ++tile) {
    if (tile % kParts != part) continue;
    int32_t* d = sum[tile / Tile::kRowTiles][tile % Tile::kRowTiles];
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      if (p == part) continue;
      const int4 other = *slot(p, tile);
      d[0] += other.x;
      d[1] += other.y;
      d[2] += other.z;
      d[3] += other.w;
    }
  }
}

// Reads x and counts from `source` instead of `a`.
template <class Tile, bool kVector, bool kBits, class Source>
__global__ void __launch_bounds__(Tile::kThreads)
    ternary_tile_kernel(const TernaryBmmArgs a, const Source source, const TernaryTilePlan plan) {
  constexpr int kRowTiles = Tile::kRowTiles, kOutputTiles = Tile::kOutputTiles;
  static_assert(!kBits || Tile::kOutputs % kWarp == 0, "bits are written as whole words");
  extern __shared__ __align__(16) unsigned char memory[];
  auto* planes = reinterpret_cast<uint32_t*>(memory);
  auto* exchanged = reinterpret_cast<int4*>(planes + Tile::kRows * plan.pitch);
  auto* counts = reinterpret_cast<int32_t*>(
      exchanged + (Tile::kPartWarps > 1 ? Tile::kWarps * Tile::kTiles * kWarp : 0));

  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int group = fragment_group(lane), quad = fragment_quad(lane);
  const int part = warp % Tile::kPartWarps, team = warp / Tile::kPartWarps;
  const int row_warp = team % Tile::kRowWarps, output_warp = team / Tile::kRowWarps;
  const int block_output = static_cast<int>(blockIdx.x) * Tile::kOutputs;
  const int first_output = block_output + output_warp * kOutputTiles * kMmaRows;
  const int64_t row_tile = blockIdx.y + int64_t{blockIdx.z} * gridDim.y;
  const int64_t first_row = row_tile * Tile::kRows;
  const int rows = static_cast<int>(min(static_cast<int64_t>(Tile::kRows), a.rows - first_row));
  if (rows <= 0) return;  // the last layer of the grid may extend past the rows

  let_next_start();
  if (kVector && thread == 0 && block_output < a.out_features)
    prefetch_cache(a.w + int64_t{block_output} * plan.words,
                   min(static_cast<int64_t>(Tile::kOutputs), a.out_features - block_output) *
                       plan.words * static_cast<int64_t>(sizeof(int32_t)));
  if (thread < Tile::kRows) counts[thread] = 0;
  WeightStages<Tile, kVector> weights(a, plan.words, first_output, group);
  wait_for_previous();

  // All loads are issued before the first is used.
  typename Source::template Fill<Tile> fill;
  fill.start(source, plan, first_row, rows);
#pragma unroll
  for (int stage = 0; stage < Tile::kStages; ++stage) {
    const int chunk = part + stage * Tile::kPartWarps;
    if (chunk < plan.chunks) weights.fetch(stage, chunk, plan.words, quad);
  }
  LaneTerms terms[kOutputTiles];
#pragma unroll
  for (int i = 0; i < kOutputTiles; ++i)
    terms[i].template load<kBits>(a, first_output + i * kMmaRows + group);
  fill.finish(source, plan, first_row, rows, planes, counts);
  __syncthreads();

  // Fragment columns past the last row repeat it.
  const uint32_t* fragment[kRowTiles];
#pragma unroll
  for (int j = 0; j < kRowTiles; ++j) {
    const int row = (row_warp * kRowTiles + j) * kMmaColumns + group;
    fragment[j] = planes + min(row, rows - 1) * plan.pitch + quad * 2 * kGroupWords;
  }
  int32_t sum[kOutputTiles][kRowTiles][4] = {};
#pragma unroll 1
  for (int first = part; first < plan.chunks; first += Tile::kStages * Tile::kPartWarps) {
#pragma unroll
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      const int chunk = first + stage * Tile::kPartWarps;
      if (chunk >= plan.chunks) break;
      multiply_chunk<Tile, kVector>(sum, weights.words[stage], fragment, chunk);
      const int next = chunk + Tile::kStages * Tile::kPartWarps;
      if (next < plan.chunks) weights.fetch(stage, next, plan.words, quad);
    }
  }
  if constexpr (Tile::kPartWarps > 1) exchange_sums<Tile>(sum, exchanged, part, team, lane);
  const auto finish = [&](const auto& store) {
#pragma unroll
    for (int j = 0; j < kRowTiles; ++j) {
      const int row = (row_warp * kRowTiles + j) * kMmaColumns;
      const int2 count = *reinterpret_cast<const int2*>(counts + row + quad * 2);
#pragma unroll
      for (int i = 0; i < kOutputTiles; ++i) {
        if (Tile::kPartWarps > 1 && (i * kRowTiles + j) % Tile::kPartWarps != part) continue;
        const int32_t* d = sum[i][j];
        const int32_t dot[4] = {2 * d[0] - count.x, 2 * d[1] - count.y, 2 * d[2] - count.x,
                                2 * d[3] - count.y};
        store(TilePlace{first_row + row, first_output + i * kMmaRows}, terms[i], dot);
      }
    }
  };
  if constexpr (kBits) {
    finish([&](const TilePlace& at, const LaneTerms& t, const int32_t (&dot)[4]) {
      store_tile_bits(a, at, t, dot, lane);
    });
  } else {
    with_value(a.type, [&](auto zero) {
      finish([&](const TilePlace& at, const LaneTerms& t, const int32_t (&dot)[4]) {
        store_tile_values<decltype(zero)>(a, at, t, dot, lane);
      });
    });
  }
}

}  // namespace bitgnn::cuda::ternary
