// Launches the tile product of ternary rows.
#pragma once

#include "core/cuda/shared_memory.h"
#include "ternary/cuda/linear/tile.cuh"
#include "ternary/cuda/linear/tile_sources.cuh"

namespace bitgnn::cuda::ternary {

// True if weight rows consist of whole 16-byte aligned groups of four words.
inline bool has_vector_weights(const TernaryBmmArgs& a) {
  return words_for(a.size) % 4 == 0 && a.size > 0 && is_aligned(a.w, 16);
}

// True if the output type is Half and values can be stored four at a time.
template <class Half>
bool stores_fours(const TernaryBmmArgs& a) {
  constexpr ValueType kType =
      std::is_same_v<Half, __half> ? ValueType::kFloat16 : ValueType::kBFloat16;
  return a.type == kType && a.out_features % 4 == 0 && is_aligned(a.out, 8);
}

template <class Tile>
TernaryTilePlan ternary_tile_plan(const TernaryBmmArgs& a) {
  TernaryTilePlan plan{};
  plan.words = static_cast<int>(words_for(a.size));
  plan.chunks = static_cast<int>(ceil_div(plan.words, kChunkWords));
  plan.pitch = plan.chunks * kChunkPitch + 4;
  plan.row_groups = FastDivisor(plan.chunks * kChunkGroups);
  return plan;
}

template <class Tile>
int64_t ternary_tile_bytes(const TernaryBmmArgs& a) {
  return ternary_tile_plan<Tile>(a).template shared_words<Tile>() * 4;
}

template <class Tile, bool kVector, bool kBits, class Source>
cudaError_t launch_ternary_tile(const TernaryBmmArgs& a, const Source& source,
                                const Context& context) {
  const TernaryTilePlan plan = ternary_tile_plan<Tile>(a);
  const auto kernel = ternary_tile_kernel<Tile, kVector, kBits, Source>;
  const auto bytes = static_cast<size_t>(ternary_tile_bytes<Tile>(a));
  const cudaError_t status = grant_shared_memory(kernel, static_cast<int64_t>(bytes));
  if (status != cudaSuccess) return status;
  constexpr int64_t kMostBlocks = 65535;  // limit of gridDim.y and gridDim.z
  const int64_t row_tiles = ceil_div(a.rows, Tile::kRows);
  const int64_t column_tiles = ceil_div(a.out_features, Tile::kOutputs);
  const int64_t layers = ceil_div(row_tiles, kMostBlocks);
  const dim3 blocks(grid_size(column_tiles), grid_size(ceil_div(row_tiles, layers)),
                    grid_size(layers));
  return launch_dependent(kernel, blocks, Tile::kThreads, bytes, context, a, source, plan);
}

}  // namespace bitgnn::cuda::ternary
