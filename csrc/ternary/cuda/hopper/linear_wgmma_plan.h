// Tiles of the wgmma product of ternary rows, for its kernel and for the choice among kernels.
#pragma once

#include <cstdint>

#include "core/cuda/hopper/wgmma_b1.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kTernaryConsumers = 2;
constexpr int kTernaryTileRows = kTernaryConsumers * kWgmmaRows;

struct TernaryWgmmaPlan {
  int words;   // per plane of a row
  int blocks;  // stages per row
  int row_tiles;
  int column_tiles;
  const int32_t* differences;    // [rows], |pos| - |neg|
  const int32_t* weight_counts;  // [out_features], |w|
  bool vectors;                  // 16-byte stores of 16-bit outputs
};

}  // namespace bitgnn::cuda::ternary
