// Launches the kernels for bit outputs that are compared as integers.
#include "bmm/arguments.h"
#include "bmm/cuda/compared_slab.cuh"

#include "bmm/cuda/compared_registers.cuh"
#include "bmm/cuda/routes.h"
#include "core/cuda/shared_memory.h"

namespace bitgnn::cuda::bmm {
namespace {

template <int kSteps>
cudaError_t launch_direct(const BmmArgs& args, const Context& context) {
  return words_for(args.size) % kShortGroup == 0 && is_aligned(args.w)
             ? launch_compared_direct<kSteps, true>(args, context)
             : launch_compared_direct<kSteps, false>(args, context);
}

}  // namespace

cudaError_t bmm_compared_direct(const BmmArgs& args, const Context& context) {
  return words_for(args.size) <= kMmaWords ? launch_direct<1>(args, context)
                                           : launch_direct<2>(args, context);
}

cudaError_t bmm_compared(const BmmArgs& args, const Context& context) {
  const ComparedPlan plan = compared_plan(args);
  const bool same = args.bias == nullptr && args.threshold == nullptr;
  const auto kernel = same ? bmm_compared_kernel<true> : bmm_compared_kernel<false>;
  int warps = kComparedMostWarps;
  while (warps > kComparedLeastWarps && plan.bytes(warps) > context.device.shared_bytes) --warps;
  const auto bytes = static_cast<size_t>(plan.bytes(warps));
  cudaError_t status = grant_shared_memory(kernel, static_cast<int64_t>(bytes));
  if (status != cudaSuccess) return status;
  int resident = 0;
  status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, warps * kWarp, bytes);
  if (status != cudaSuccess) return status;
  if (resident == 0) return cudaErrorInvalidConfiguration;
  const int64_t blocks = std::min<int64_t>(ceil_div(plan.slabs * plan.passes, warps),
                                           int64_t{resident} * context.device.sm_count);
  return launch_dependent(kernel, grid_size(blocks), warps * kWarp, bytes, context, args, plan);
}

}  // namespace bitgnn::cuda::bmm
