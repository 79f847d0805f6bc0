// Launches the Hopper product of many float rows with many packed weights.
#include "bmm/arguments.h"
#include "bmm/cuda/hopper/packing_wgmma.cuh"

#include "bmm/cuda/floats/launch.h"

namespace bitgnn::cuda::bmm {
namespace {

template <class T>
cudaError_t launch(const BmmArgs& args, const Context& context) {
  const pack::DenseRows<T> source{static_cast<const T*>(args.pack->x), args.pack->row_stride};
  return args.packed_scale && needs_scales(slab_output(args))
             ? launch_bmm_packing_ring<true>(source, args, context)
             : launch_bmm_packing_ring<false>(source, args, context);
}

}  // namespace

bool suits_ring(const BmmArgs& args, const Context& context) {
  if (!context.device.is_hopper() || args.size == 0) return false;
  const RingPlan plan = ring_plan(args, context);
  return 2 * plan.tiles >= context.device.sm_count &&
         ring_bytes(plan) <= context.device.shared_bytes;
}

cudaError_t bmm_packing_ring(const BmmArgs& args, const Context& context) {
  return pack::with_float_type(args.pack->type,
                               [&](auto zero) { return launch<decltype(zero)>(args, context); });
}

}  // namespace bitgnn::cuda::bmm
