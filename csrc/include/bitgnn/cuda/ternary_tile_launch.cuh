// Launches the tile product of ternary rows.
#pragma once

#include "bitgnn/cuda/shared_memory.h"
#include "bitgnn/cuda/ternary_sources.cuh"
#include "bitgnn/cuda/ternary_tile.cuh"

namespace bitgnn::cuda {

inline bool is_aligned(const void* p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) == 0;
}

// Weight rows whose pieces of four words lie at 16-byte addresses.
inline bool has_vector_weights(const TernaryBmmArgs& a) {
  return words_for(a.size) % 4 == 0 && a.size > 0 && is_aligned(a.w, 16);
}

// Later devices than 9.0 emulate 1-bit products on tensor cores, slower than plain instructions.
inline bool has_tensor_cores(const Context& context) {
  return context.device.capability >= 80 && context.device.capability < 100;
}

template <class Tile>
TernaryTilePlan ternary_tile_plan(const TernaryBmmArgs& a) {
  TernaryTilePlan plan{};
  plan.words = static_cast<int>(words_for(a.size));
  plan.chunks = static_cast<int>(ceil_div(plan.words, kChunkWords));
  plan.pitch = plan.chunks * kChunkPitch + 4;
  plan.row_units = FastDivisor(plan.chunks * kChunkWords * kWordBits / kUnitFloats);
  plan.row_groups = FastDivisor(plan.chunks * kChunkGroups);
  return plan;
}

template <class Tile>
int64_t ternary_tile_bytes(const TernaryBmmArgs& a) {
  return ternary_tile_plan<Tile>(a).template shared_words<Tile>() * 4;
}

// Blocks, next to each other along the outputs, of a cluster start together.
template <class Tile, bool kVector, bool kBits, class Source>
cudaError_t launch_ternary_tile(const TernaryBmmArgs& a, const Source& source,
                                const Context& context) {
  const TernaryTilePlan plan = ternary_tile_plan<Tile>(a);
  const auto kernel = ternary_tile_kernel<Tile, kVector, kBits, Source>;
  const auto bytes = static_cast<size_t>(ternary_tile_bytes<Tile>(a));
  const cudaError_t status = grant_shared_memory(kernel, static_cast<int64_t>(bytes));
  if (status != cudaSuccess) return status;
  constexpr int64_t kMostBlocks = 65535;  // along the second and the third dimension
  const int64_t row_tiles = ceil_div(a.rows, Tile::kRows);
  const int64_t column_tiles =
      ceil_div(ceil_div(a.out_features, Tile::kOutputs), Tile::kCluster) * Tile::kCluster;
  const int64_t layers = ceil_div(row_tiles, kMostBlocks);
  const dim3 blocks(grid_size(column_tiles), grid_size(ceil_div(row_tiles, layers)),
                    grid_size(layers));
  if constexpr (Tile::kCluster == 1) {
    return launch_dependent(kernel, blocks, Tile::kThreads, bytes, context, a, source, plan);
  } else {
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = Tile::kCluster;
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = dim3(Tile::kThreads);
    config.dynamicSmemBytes = bytes;
    config.stream = context.stream;
    config.attrs = attributes;
    config.numAttrs = 2;
    return cudaLaunchKernelEx(&config, kernel, a, source, plan);
  }
}

}  // namespace bitgnn::cuda
