// Values or bits of sums of packed rows whose table exceeds the L2 cache.
#include "bspmm/cuda/routes.h"
#include "bspmm/cuda/staged.cuh"

namespace bitgnn::cuda::bspmm {
namespace {

struct StagedRows {
  struct State {};
  CsrRows source;
  int access;

  template <class Lanes, int kPlanes>
  __device__ __forceinline__ void rows(State&, const Lanes& lanes,
                                       const CountPlanes<Lanes::kKept, kPlanes>& counts,
                                       int64_t row, float scale, int degree, bool wanted,
                                       int64_t chunk) const {
    finish_planes<Lanes>(source.a, source.bounds, lanes, counts, row, scale, degree, wanted, chunk);
  }
  template <class Lanes, int kPlanes>
  __device__ __forceinline__ void long_row(State& state, const Lanes& lanes,
                                           const CountPlanes<Lanes::kKept, kPlanes>& counts, int,
                                           int64_t row, float scale, int degree,
                                           int64_t chunk) const {
    rows(state, lanes, counts, row, scale, degree, true, chunk);
  }
  template <int kRowWords>
  __device__ __forceinline__ void hub(State&, const LongRow& row, float scale, const int* counts,
                                      int64_t chunk) const {
    finish_hub<false, kRowWords, kStagedThreads>(source.a, row, scale, counts, chunk);
  }
  template <class Lanes>
  __device__ __forceinline__ void close(const State&, const Lanes&, int64_t, bool) const {}
  __device__ __forceinline__ void close_hub(const State&, int64_t) const {}
};

}  // namespace

cudaError_t aggregate_beyond_cache(const AggregateArgs& args, const BoundTable& bounds,
                                   const Context& context) {
  return launch_staged(StagedRows{CsrRows{args, bounds}, access_words(args)}, context);
}

}  // namespace bitgnn::cuda::bspmm
