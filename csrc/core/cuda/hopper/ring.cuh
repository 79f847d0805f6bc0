// What persistent kernels with a ring of stages in shared memory share: a cursor in the ring, and
// the order of output tiles.
#pragma once

#include "core/cuda/common.cuh"

namespace bitgnn::cuda {

// A place in a ring, and the phase of its barrier, which flips with every turn of the ring.
struct RingCursor {
  int at = 0;
  int phase = 0;
  __device__ __forceinline__ void advance(int size) {
    if (++at == size) {
      at = 0;
      phase ^= 1;
    }
  }
};

// Orders tiles in groups of eight tile rows, so that concurrent blocks share operands in L2.
__device__ __forceinline__ void locate_tile(int tile, int row_tiles, int column_tiles,
                                            int& row_tile, int& column_tile) {
  constexpr int kGroup = 8;
  const int first = tile / (kGroup * column_tiles) * kGroup;
  const int height = min(kGroup, row_tiles - first);
  const int inside = tile - first * column_tiles;
  column_tile = inside / height;
  row_tile = first + inside - column_tile * height;
}

}  // namespace bitgnn::cuda
