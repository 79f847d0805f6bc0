// Launches aggregations over FRDC tiles.
#include "bspmm/arguments.h"
#include "bspmm/cuda/frdc.cuh"

#include "bspmm/cuda/bits.cuh"

namespace bitgnn::cuda::bspmm {

cudaError_t aggregate_frdc(const FrdcArgs& a, const Context& context) {
  if (a.csr.rows == 0 || a.csr.features == 0) return cudaSuccess;
  const int64_t tile_rows = ceil_div(a.csr.rows, kTileDim);
  auto* degrees = static_cast<int32_t*>(
      context.workspace.take(static_cast<size_t>(a.csr.rows) * sizeof(int32_t)));
  const int64_t blocks = ceil_div(tile_rows, kTileThreads / kWarp);
  count_tile_edges<<<static_cast<unsigned>(blocks), kTileThreads, 0, context.stream>>>(a, tile_rows,
                                                                                       degrees);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) return status;
  // A warp takes the four rows of a tile row.
  using Each = ShortRows<16, 5, kTileDim, 256, 3>;
  const TileRows source{a, degrees};
  if (reads_in(a.csr, kAccessWords)) return launch_rows<Each, 4, 8, 1>(source, a.csr, context);
  return launch_rows<Each, 1, 2, 4>(source, a.csr, context);
}

}  // namespace bitgnn::cuda::bspmm
