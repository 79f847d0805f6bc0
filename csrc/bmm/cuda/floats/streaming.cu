// Plans and launches products of float activations with weights too large for shared memory.
#include "bmm/arguments.h"
#include "bmm/cuda/floats/streaming.cuh"

#include "bmm/cuda/routes.h"

namespace bitgnn::cuda::bmm {
namespace {

template <class T>
cudaError_t launch(const BmmArgs& args, const Context& context) {
  const pack::DenseRows<T> source{static_cast<const T*>(args.pack->x), args.pack->row_stride};
  const StreamingPlan plan = streaming_plan(args, context);
  const bool scale = args.packed_scale && needs_scales(slab_output(args));
  return scale ? launch_bmm_streaming<true>(source, args, plan, context)
               : launch_bmm_streaming<false>(source, args, plan, context);
}

}  // namespace

cudaError_t bmm_streaming(const BmmArgs& args, const Context& context) {
  return with_quantised_type(args.pack->type,
                             [&](auto zero) { return launch<decltype(zero)>(args, context); });
}

}  // namespace bitgnn::cuda::bmm
