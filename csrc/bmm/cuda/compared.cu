// Selects and launches the kernel for bit outputs that are compared as integers.
#include "bmm/arguments.h"
#include "bmm/cuda/compared_slab.cuh"

#include "bmm/cuda/compared_registers.cuh"
#include "bmm/cuda/routes.h"
#include "core/cuda/shared_memory.h"

namespace bitgnn::cuda::bmm {
namespace {

constexpr int64_t kLeastRows = 1 << 15;  // fewer do not amortise both copies of the weights
constexpr int64_t kMostRows = 1 << 28;   // slab passes are counted in 32 bits
constexpr int64_t kMostColumns = 256;
constexpr int kLeastDirectWords = 4;  // shorter rows are bound by reading alone
constexpr int64_t kMostFeatures = 1 << 13;
constexpr int kLeastWarps = 4;  // fewer leave schedulers of a multiprocessor idle

// True if rows and results fit in half of L2. Beyond that, slabs that are copied ahead wait less
// for rows.
bool stays_cached(const BmmArgs& args, const Context& context) {
  const int64_t words = words_for(args.size) + words_for(args.out_features);
  return 2 * args.rows * words * static_cast<int64_t>(sizeof(int32_t)) <=
         context.device.cache_bytes;
}

template <int kSteps>
cudaError_t launch_direct(const BmmArgs& args, const Context& context) {
  return words_for(args.size) % kShortGroup == 0 && is_aligned(args.w)
             ? launch_compared_direct<kSteps, true>(args, context)
             : launch_compared_direct<kSteps, false>(args, context);
}

}  // namespace

bool suits_compared(const BmmArgs& args, const Context& context) {
  return args.rows >= kLeastRows && args.rows < kMostRows && args.out_bits != nullptr &&
         args.addend == nullptr && args.row_scale == nullptr && args.size > 0 &&
         args.size <= kMostFeatures && args.out_features <= kMostColumns && is_aligned(args.x) &&
         is_aligned(args.out_bits) &&
         compared_plan(args).bytes(kLeastWarps) <= context.device.shared_bytes;
}

cudaError_t bmm_compared(const BmmArgs& args, const Context& context) {
  const ComparedPlan plan = compared_plan(args);
  if (plan.words >= kLeastDirectWords && plan.steps <= kStationaryMostSteps &&
      stays_cached(args, context))
    return plan.steps == 1 ? launch_direct<1>(args, context) : launch_direct<2>(args, context);
  const bool same = args.bias == nullptr && args.threshold == nullptr;
  const auto kernel = same ? bmm_compared_kernel<true> : bmm_compared_kernel<false>;
  int warps = kComparedMostWarps;
  while (warps > kLeastWarps && plan.bytes(warps) > context.device.shared_bytes) --warps;
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
