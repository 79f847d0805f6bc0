// Second of two launches that add sums of neighbours to products: computes the bits of a product of
// short packed rows plus staged counts. Every warp keeps the weights of 32 outputs in registers and
// streams tiles of 16 rows past them. Bound by the arithmetic of the comparison.
#pragma once

#include <algorithm>

#include "bmm/arguments.h"
#include "bmm/cuda/stationary_weights.cuh"
#include "core/cuda/dependent_launch.cuh"
#include "pairs/cuda/joint/staged_counts.cuh"

namespace bitgnn::cuda::pairs {

constexpr int kStagedThreads = 256;
constexpr int kStagedWarps = kStagedThreads / kWarp;
constexpr int kStagedBlocks = 2;  // per multiprocessor

struct StagedProduct {
  BmmArgs product;
  const float* sum_bias;  // [out_features] or null
  StagedCounts staged;
  int words;       // words per packed row, a multiple of kShortGroup
  int out_words;   // words per row of outputs
  int word_warps;  // warps of a block that share a tile's output words
  int tiles;
  uint32_t count_start;  // kCountStart; read from here, it stays in a register
};

// A count is byte 1 of a float that starts at 2^23, where a step is 256.
constexpr uint32_t kCountStart = 0x4b000000u;
constexpr float kCountStep = 0x1p-7f;  // twice the count per step
constexpr int kCountBase = 1 << 16;

// A lane's data for two columns of each fragment.
struct StagedColumns {
  float2 term[bmm::kWordFragments];  // twice the set bits of the weights, in units of kTermUnit
  float2 scale[bmm::kWordFragments], bias[bmm::kWordFragments], sum_bias[bmm::kWordFragments],
      threshold[bmm::kWordFragments];
};

// Values of two columns; those past the last column do not matter.
__device__ __forceinline__ float2 column_pair(const float* values, int64_t at, int64_t last,
                                              float missing) {
  if (values == nullptr) return make_float2(missing, missing);
  return make_float2(__ldg(values + min(at, last)), __ldg(values + min(at + 1, last)));
}

template <int kSteps>
__device__ __forceinline__ void load_staged_columns(bmm::StationaryWeights<kSteps>& w,
                                                    StagedColumns& columns, const StagedProduct& d,
                                                    int64_t first, int lane) {
  const BmmArgs& p = d.product;
  const int64_t last = p.out_features - 1;
  const uint32_t ones[4] = {~0u, ~0u, ~0u, ~0u};
#pragma unroll
  for (int j = 0; j < bmm::kWordFragments; ++j) {
    const int64_t column = min(first + j * kMmaColumns + fragment_group(lane), last);
    bmm::ShortRow<kSteps> words;
    bmm::load_short_row<kSteps>(words, p.w + column * d.words, d.words, true, fragment_quad(lane));
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 2; ++i) w[step][j][i] = words[2 * step + i];
    }
    const int64_t at = first + j * kMmaColumns + fragment_quad(lane) * 2;
    columns.scale[j] = column_pair(p.out_scale, at, last, 1.0f);
    columns.bias[j] = column_pair(p.bias, at, last, -0.0f);
    columns.sum_bias[j] = column_pair(d.sum_bias, at, last, -0.0f);
    columns.threshold[j] = column_pair(p.threshold, at, last, 0.0f);
  }
#pragma unroll
  for (int j = 0; j < bmm::kWordFragments; ++j) {
    int32_t counts[4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) mma_and_popc(counts, ones, w[step][j]);
    columns.term[j] = make_float2(__int2float_rn(counts[0]) * (2.0f * bmm::kTermUnit),
                                  __int2float_rn(counts[1]) * (2.0f * bmm::kTermUnit));
  }
}

// A lane's share of a tile: for rows g and g + 8 the packed words, the counts of its columns and
// the factors.
template <int kSteps>
struct StagedTile {
  bmm::ShortRow<kSteps> x[2];
  uint2 counts[2];
  StagedRow row[2];
};

// Addresses of a lane's share of the tiles.
struct StagedPlaces {
  const char* counts;
  const StagedRow* rows;
  uint32_t tile_bytes;  // of counts
  uint32_t row_bytes;   // of packed words
  int last_row;

  __device__ __forceinline__ StagedPlaces(const StagedProduct& d, int word, int lane) {
    const int group = fragment_group(lane), quad = fragment_quad(lane);
    counts = reinterpret_cast<const char*>(d.staged.counts +
                                           (word * kStagedParts + quad / 2) * kMmaRows + group) +
             quad % 2 * sizeof(uint2);
    rows = d.staged.rows + group;
    tile_bytes = static_cast<uint32_t>(d.out_words * kStagedParts * kMmaRows) * sizeof(uint4);
    row_bytes = static_cast<uint32_t>(d.words) * sizeof(uint32_t);
    last_row = static_cast<int>(d.product.rows) - 1;
  }

  template <int kSteps>
  __device__ __forceinline__ void load(StagedTile<kSteps>& tile, const StagedProduct& d, int index,
                                       int lane) const {
    const auto* x = reinterpret_cast<const char*>(d.product.x);
    const char* own_counts =
        counts + static_cast<uint64_t>(static_cast<uint32_t>(index)) * tile_bytes;
    const StagedRow* own_rows = rows + static_cast<int64_t>(index) * kMmaRows;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      constexpr int kRows = kMmaRows / 2;
      const int row = min(index * kMmaRows + fragment_group(lane) + half * kRows, last_row);
      const char* from = x + static_cast<uint64_t>(static_cast<uint32_t>(row)) * row_bytes;
      bmm::load_short_row<kSteps>(tile.x[half], reinterpret_cast<const int32_t*>(from), d.words,
                                  true, fragment_quad(lane));
      tile.row[half] = own_rows[half * kRows];
      tile.counts[half] =
          *reinterpret_cast<const uint2*>(own_counts + half * kRows * sizeof(uint4));
    }
  }
};

// Bits of the lane's columns of rows g and g + 8, in place except for a shift by 2 q.
template <int kSteps, bool kBias>
__device__ __forceinline__ void join_tile(uint32_t (&bits)[2], const StagedTile<kSteps>& tile,
                                          const bmm::StationaryWeights<kSteps>& w,
                                          const StagedColumns& columns, const StagedProduct& d) {
  bmm::TileSums sum;
  int32_t row_terms[2];
  bmm::multiply_tile<kSteps>(sum, row_terms, tile.x, w, d.product.size);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    bits[half] = 0;
    const StagedRow& row = tile.row[half];
    const float row_term = __int2float_rn(row_terms[half]);
    const float base = __int2float_rn(-(kCountBase + row.degree));
#pragma unroll
    for (int j = 0; j < bmm::kWordFragments; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        // Product and sum are both exact: multiples of a power of two, below 2^24 times it.
        const float part = bmm::column_part(sum[j][half * 2 + e], bmm::of_pair(columns.term[j], e));
        const float dot = __fmaf_rn(part, bmm::kTermScale, row_term);
        const uint32_t piece = e == 0 ? tile.counts[half].x : tile.counts[half].y;
        const float count = __uint_as_float(__byte_perm(piece, d.count_start, 0x7604 | j << 4));
        const float total = __fmaf_rn(count, kCountStep, base);
        float product = __fmul_rn(__fmul_rn(row.scale, bmm::of_pair(columns.scale[j], e)), dot);
        if constexpr (kBias) product = __fadd_rn(product, bmm::of_pair(columns.bias[j], e));
        const float addend =
            __fadd_rn(__fmul_rn(row.sum_scale, total), bmm::of_pair(columns.sum_bias[j], e));
        if (__fadd_rn(product, addend) >= bmm::of_pair(columns.threshold[j], e))
          bits[half] |= 1u << (j * kMmaColumns + e);
      }
    }
  }
}

// blockIdx.y selects the block's output words.
template <int kSteps, bool kBias>
__global__ void __launch_bounds__(kStagedThreads, kStagedBlocks)
    bmm_staged_kernel(const __grid_constant__ StagedProduct d) {
  const BmmArgs& p = d.product;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int quad = fragment_quad(lane);
  const int word = static_cast<int>(blockIdx.y) * kStagedWarps + warp % d.word_warps;
  let_next_start();
  if (word >= d.out_words) return;
  const int64_t first_column = static_cast<int64_t>(word) * kWordBits;
  // The weights were ready before the previous launch, which waited for them.
  bmm::StationaryWeights<kSteps> w;
  StagedColumns columns;
  load_staged_columns<kSteps>(w, columns, d, first_column, lane);
  const bmm::WordFlips flips(p, first_column, false, lane);
  const StagedPlaces places(d, word, lane);
  // Lanes 0 and 1 of a quad write one row each.
  const int own_row = fragment_group(lane) + (quad & 1) * (kMmaRows / 2);
  const auto out_bytes =
      static_cast<uint32_t>(d.out_words) * static_cast<uint32_t>(sizeof(int32_t));
  char* const out = reinterpret_cast<char*>(p.out_bits + word);
  wait_for_previous();

  const int groups = kStagedWarps / d.word_warps;
  const int stride = static_cast<int>(gridDim.x) * groups;
  int index = static_cast<int>(blockIdx.x) * groups + warp / d.word_warps;
  if (index >= d.tiles) return;
  StagedTile<kSteps> tiles[2];
  places.load(tiles[0], d, index, lane);
  const auto step = [&](const StagedTile<kSteps>& tile, StagedTile<kSteps>& next) {
    places.load(next, d, min(index + stride, d.tiles - 1), lane);
    uint32_t bits[2];
    join_tile<kSteps, kBias>(bits, tile, w, columns, d);
    bmm::share_tile_bits(bits, quad);
    const int row = index * kMmaRows + own_row;
    const int degree = quad == 0 ? tile.row[0].degree : tile.row[1].degree;
    if (quad < 2 && row <= places.last_row && degree <= kStagedMost)
      *reinterpret_cast<uint32_t*>(out +
                                   static_cast<uint64_t>(static_cast<uint32_t>(row)) * out_bytes) =
          flips.apply(quad == 0 ? bits[0] : bits[1]);
    index += stride;
  };
#pragma unroll 1
  while (true) {
    step(tiles[0], tiles[1]);
    if (index >= d.tiles) break;
    step(tiles[1], tiles[0]);
    if (index >= d.tiles) break;
  }
}

template <int kSteps, bool kBias>
cudaError_t launch_bmm_staged(const StagedProduct& d, const Context& context) {
  const auto kernel = bmm_staged_kernel<kSteps, kBias>;
  int resident = 0;
  const cudaError_t status =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kStagedThreads, 0);
  if (status != cudaSuccess) return status;
  if (resident == 0) return cudaErrorInvalidConfiguration;
  const int64_t groups = kStagedWarps / d.word_warps;
  const int64_t blocks =
      std::min(ceil_div(d.tiles, groups), static_cast<int64_t>(resident) * context.device.sm_count);
  const dim3 grid(grid_size(blocks), grid_size(ceil_div(d.out_words, kStagedWarps)));
  return launch_dependent(kernel, grid, kStagedThreads, 0, context, d);
}

inline StagedProduct staged_product(const BmmArgs& product, const float* sum_bias,
                                    const StagedCounts& staged) {
  const bmm::StationaryPlan plan = bmm::stationary_plan(product, kStagedWarps);
  return {product,        sum_bias,        staged,     plan.words,
          plan.out_words, plan.word_warps, plan.tiles, kCountStart};
}

}  // namespace bitgnn::cuda::pairs
