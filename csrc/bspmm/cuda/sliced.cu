// Launches the aggregation of packed rows over a sliced pattern.
#include "bspmm/arguments.h"
#include "bspmm/cuda/sliced.cuh"

namespace bitgnn::cuda::bspmm {
namespace {

template <int kColumns>
cudaError_t merge_slots(const SlicedArgs& args, const uint32_t* partials, const Context& context) {
  SlotRows source{args, partials};
  const cudaError_t status = make_bounds(args.csr, context, source.bounds);
  if (status != cudaSuccess) return status;
  return launch_rows<ShortRows<16, 5, 4, 256, 4>, 1, 2, kColumns>(source, args.csr, context);
}

}  // namespace

cudaError_t aggregate_sliced(const SlicedArgs& args, const Context& context) {
  if (args.csr.rows == 0 || args.csr.features == 0) return cudaSuccess;
  const int64_t words = words_for(args.csr.features);
  const uint32_t* partials = nullptr;
  const cudaError_t status = count_slice_items(args, context, partials);
  if (status != cudaSuccess) return status;
  if (words <= 4) return merge_slots<4>(args, partials, context);
  if (words <= 8) return merge_slots<8>(args, partials, context);
  return merge_slots<16>(args, partials, context);
}

}  // namespace bitgnn::cuda::bspmm
