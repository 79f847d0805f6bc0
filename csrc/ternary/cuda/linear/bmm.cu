// Launches products of packed ternary rows: tensor-core tiles, or the SIMT kernel.
#include "ternary/cuda/linear/simt.cuh"
#include "ternary/cuda/linear/tile_launch.cuh"
#include "ternary/cuda/routes.h"

namespace bitgnn::cuda::ternary {
namespace {

template <class Tile, bool kBits>
cudaError_t run(const TernaryBmmArgs& a, const Context& context) {
  if (has_vector_weights(a) && is_aligned(a.x, 8))
    return launch_ternary_tile<Tile, true, kBits>(a, PlaneSource<true>{a.x, a.counts}, context);
  return launch_ternary_tile<Tile, false, kBits>(a, PlaneSource<false>{a.x, a.counts}, context);
}

}  // namespace

template <class Tile>
cudaError_t multiply_ternary_tile(const TernaryBmmArgs& a, const Context& context) {
  return a.out_bits != nullptr ? run<Tile, true>(a, context) : run<Tile, false>(a, context);
}

template cudaError_t multiply_ternary_tile<TernaryFewTile>(const TernaryBmmArgs&, const Context&);
template cudaError_t multiply_ternary_tile<TernarySomeTile>(const TernaryBmmArgs&, const Context&);
template cudaError_t multiply_ternary_tile<TernaryManyTile>(const TernaryBmmArgs&, const Context&);

cudaError_t multiply_ternary_simt(const TernaryBmmArgs& a, const Context& context) {
  const int64_t warps = a.rows * words_for(a.out_features);
  return launch_dependent(ternary_simt_kernel, dim3(grid_size(ceil_div(warps, kTernarySimtWarps))),
                          kTernarySimtWarps * kWarp, 0, context, a, words_for(a.size));
}

}  // namespace bitgnn::cuda::ternary
