// Launches aggregations over FRDC tiles.
#include "bspmm/cuda/frdc.cuh"
#include "bspmm/cuda/launch.h"

namespace bitgnn::cuda::bspmm {
namespace {

constexpr int64_t kMaxGridY = 65535;
constexpr int kChunkWords = 4;

template <Reconcile kMethod, int kWords>
cudaError_t launch_words(const FrdcArgs& a, const Context& context) {
  const int64_t words = words_for(a.csr.features);
  const int64_t chunks = ceil_div(words, kWords);
  const int64_t tile_rows = ceil_div(a.csr.rows, kTileDim);
  FrdcLaunch launch{};
  launch.args = a;
  AggregateArgs rows = a.csr;
  rows.rows = tile_rows;
  const cudaError_t error = order_rows(rows, chunks * kTileDim, context, &launch.order);
  if (error != cudaSuccess) return error;
  launch.aligned = words % kWords == 0 && a.csr.x_stride % kWords == 0 &&
                   reinterpret_cast<uintptr_t>(a.csr.x) % (kWords * sizeof(int32_t)) == 0;
  const int64_t blocks = ceil_div(tile_rows, kFrdcWarps) + launch.order.heavy_blocks;
  for (; launch.first_chunk < chunks; launch.first_chunk += kMaxGridY) {
    const int64_t left = chunks - launch.first_chunk;
    const dim3 grid(static_cast<unsigned>(blocks),
                    static_cast<unsigned>(left < kMaxGridY ? left : kMaxGridY));
    aggregate_frdc_kernel<kMethod, kWords><<<grid, kFrdcThreads, 0, context.stream>>>(launch);
  }
  return cudaPeekAtLastError();
}

template <Reconcile kMethod>
cudaError_t launch_method(const FrdcArgs& a, const Context& context) {
  return words_for(a.csr.features) == 1 ? launch_words<kMethod, 1>(a, context)
                                        : launch_words<kMethod, kChunkWords>(a, context);
}

}  // namespace

cudaError_t aggregate_frdc(const FrdcArgs& a, const Context& context) {
  if (a.csr.rows == 0 || a.csr.features == 0) return cudaSuccess;
  switch (a.method) {
    case Reconcile::kIfElse:
      return launch_method<Reconcile::kIfElse>(a, context);
    case Reconcile::kAndAndNot:
      return launch_method<Reconcile::kAndAndNot>(a, context);
    case Reconcile::kAndDegree:
      return launch_method<Reconcile::kAndDegree>(a, context);
  }
  return cudaErrorInvalidValue;
}

}  // namespace bitgnn::cuda::bspmm
