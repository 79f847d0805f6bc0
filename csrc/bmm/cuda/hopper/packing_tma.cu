// Launches the Hopper products whose float rows are loaded by the TMA.
#include "bmm/cuda/hopper/packing_tma.cuh"

#include <type_traits>

#include "bmm/cuda/routes.h"

namespace bitgnn::cuda::bmm {
namespace {

// With compile-time constants for whether all columns are compared with zero, whether rows are
// compared with thresholds, and the floats per access.
template <bool kTeams>
cudaError_t launch(const BmmArgs& args, const Context& context) {
  const auto with_vector = [&](auto same, auto shift) {
    constexpr bool kSame = decltype(same)::value, kShift = decltype(shift)::value;
    if (args.size % 4 == 0) return launch_bmm_packing_tma<kTeams, kSame, kShift, 4>(args, context);
    if (args.size % 2 == 0) return launch_bmm_packing_tma<kTeams, kSame, kShift, 2>(args, context);
    return launch_bmm_packing_tma<kTeams, kSame, kShift, 1>(args, context);
  };
  const auto with_shift = [&](auto same) {
    return args.pack->threshold != nullptr ? with_vector(same, std::true_type())
                                           : with_vector(same, std::false_type());
  };
  return args.bias == nullptr && args.threshold == nullptr ? with_shift(std::true_type())
                                                           : with_shift(std::false_type());
}

}  // namespace

cudaError_t bmm_packing_tma(const BmmArgs& args, bool teams, const Context& context) {
  return teams ? launch<true>(args, context) : launch<false>(args, context);
}

}  // namespace bitgnn::cuda::bmm
