// Launches products of packed ternary rows: tensor-core tiles where possible, else the SIMT kernel.
#include "ternary/cuda/linear/simt.cuh"
#include "ternary/cuda/linear/tile_launch.cuh"
#include "ternary/cuda/routes.h"

namespace bitgnn::cuda::ternary {
namespace {

// Row tiles, row warps, output tiles, output warps, part warps, stages, batch.
using FewRows = TernaryTile<1, 1, 2, 4, 3, 2, 2>;
using SomeRows = TernaryTile<4, 1, 2, 4, 2, 3, 5>;
using ManyRows = TernaryTile<4, 2, 2, 4, 1, 2, 4>;

template <class Tile, bool kBits>
cudaError_t run(const TernaryBmmArgs& a, const Context& context) {
  if (has_vector_weights(a) && is_aligned(a.x, 8))
    return launch_ternary_tile<Tile, true, kBits>(a, PlaneSource<true>{a.x, a.counts}, context);
  return launch_ternary_tile<Tile, false, kBits>(a, PlaneSource<false>{a.x, a.counts}, context);
}

template <class Tile>
bool suits_tile(const TernaryBmmArgs& a, const Context& context) {
  return ternary_tile_bytes<Tile>(a) <= context.device.shared_bytes;
}

template <bool kBits>
cudaError_t run(const TernaryBmmArgs& a, const Context& context) {
  if (a.rows > SomeRows::kRows && suits_tile<ManyRows>(a, context))
    return run<ManyRows, kBits>(a, context);
  if (a.rows > FewRows::kRows && suits_tile<SomeRows>(a, context))
    return run<SomeRows, kBits>(a, context);
  return run<FewRows, kBits>(a, context);
}

}  // namespace

cudaError_t multiply_ternary_tile(const TernaryBmmArgs& a, const Context& context) {
  if (a.size > 0 && context.device.has_bit_products() && suits_tile<FewRows>(a, context))
    return a.out_bits != nullptr ? run<true>(a, context) : run<false>(a, context);
  const int64_t warps = a.rows * words_for(a.out_features);
  return launch_dependent(ternary_simt_kernel, dim3(grid_size(ceil_div(warps, kTernarySimtWarps))),
                          kTernarySimtWarps * kWarp, 0, context, a, words_for(a.size));
}

}  // namespace bitgnn::cuda::ternary
