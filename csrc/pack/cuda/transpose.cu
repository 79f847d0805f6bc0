// Launches the transposition of bit matrices.

#include "pack/arguments.h"
#include "pack/cuda/transpose.cuh"

#include <algorithm>

namespace bitgnn::cuda::pack {

cudaError_t transpose_bits(const int32_t* words, int64_t rows, int64_t size, int32_t* out,
                           const Context& context) {
  if (rows == 0 || size == 0) return cudaSuccess;
  constexpr int64_t kMostBlocks = 65535;
  const int64_t across = ceil_div(words_for(size), kTransposeSquares);
  const int64_t down = std::min(ceil_div(words_for(rows), kTransposeWarps), kMostBlocks);
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(down));
  return launch_dependent(transpose_bits_kernel, grid, kTransposeWarps * kWarp, 0, context, words,
                          rows, size, out);
}

}  // namespace bitgnn::cuda::pack
