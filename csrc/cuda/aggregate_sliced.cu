// Launches the aggregation of packed rows over a sliced pattern.
#include "bitgnn/cuda/aggregate_sliced.cuh"

namespace bitgnn::cuda {
namespace {

constexpr int kSliceThreads = 640;  // as many as have the registers they need
constexpr int kStepsAhead = 4;
constexpr int kSliceWords = 4;

template <int kColumns>
cudaError_t merge_slots(const SlicedArgs& args, const uint32_t* partials, const Context& context) {
  return launch_rows<ShortRows<16, 5, 4, 256, 4>, 1, 2, kColumns>(SlotRows{args, partials},
                                                                  args.csr, context);
}

}  // namespace

cudaError_t aggregate_sliced(const SlicedArgs& args, const Context& context) {
  if (args.csr.rows == 0 || args.csr.features == 0) return cudaSuccess;
  const int64_t words = words_for(args.csr.features);
  const int chunks = static_cast<int>(ceil_div(words, kSliceWords));
  const size_t shared = (args.slice_size + 1) * kSliceWords * sizeof(uint32_t);
  if (shared > static_cast<size_t>(context.device.shared_bytes)) return cudaErrorInvalidValue;
  auto* partials = static_cast<uint32_t*>(
      context.workspace.take(chunks * args.places * kPlaceWords * sizeof(uint32_t)));
  if (args.groups > 0) {
    const auto kernel = count_slices<kSliceWords, kSliceThreads, kStepsAhead>;
    const cudaError_t status = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (status != cudaSuccess) return status;
    kernel<<<context.device.sm_count, kSliceThreads, shared, context.stream>>>(args, chunks,
                                                                               partials);
  }
  if (words <= 4) return merge_slots<4>(args, partials, context);
  if (words <= 8) return merge_slots<8>(args, partials, context);
  return merge_slots<16>(args, partials, context);
}

}  // namespace bitgnn::cuda
