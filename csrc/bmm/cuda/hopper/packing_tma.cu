// Launches the Hopper products whose float rows are loaded by the TMA.
#include "bmm/arguments.h"
#include "bmm/cuda/hopper/packing_tma_warps.cuh"

#include <type_traits>

#include "bmm/cuda/hopper/packing_tma_teams.cuh"
#include "bmm/cuda/routes.h"

namespace bitgnn::cuda::bmm {
namespace {

// Calls f with compile-time constants: whether all columns are compared with zero, whether rows are
// compared with thresholds, and the floats per access.
template <class F>
cudaError_t with_bulk_form(const BmmArgs& args, const F& f) {
  const auto with_vector = [&](auto same, auto shift) {
    if (args.size % 4 == 0) return f(same, shift, std::integral_constant<int, 4>());
    if (args.size % 2 == 0) return f(same, shift, std::integral_constant<int, 2>());
    return f(same, shift, std::integral_constant<int, 1>());
  };
  const auto with_shift = [&](auto same) {
    return args.pack->threshold != nullptr ? with_vector(same, std::true_type())
                                           : with_vector(same, std::false_type());
  };
  return args.bias == nullptr && args.threshold == nullptr ? with_shift(std::true_type())
                                                           : with_shift(std::false_type());
}

}  // namespace

cudaError_t bmm_packing_bulk(const BmmArgs& args, const Context& context) {
  const BulkPlan plan = bulk_plan(args, context);
  return with_bulk_form(args, [&](auto same, auto shift, auto vector) {
    return launch_bmm_packing_bulk<decltype(same)::value, decltype(shift)::value,
                                   decltype(vector)::value>(args, plan, context);
  });
}

cudaError_t bmm_packing_teams(const BmmArgs& args, const Context& context) {
  const TeamPlan plan = team_plan(args, context);
  return with_bulk_form(args, [&](auto same, auto shift, auto vector) {
    return launch_bmm_packing_teams<decltype(same)::value, decltype(shift)::value,
                                    decltype(vector)::value>(args, plan, context);
  });
}

}  // namespace bitgnn::cuda::bmm
