// Selects and launches the Hopper products whose float rows are loaded by the TMA.
#include "bmm/arguments.h"
#include "bmm/cuda/hopper/packing_tma_warps.cuh"

#include "bmm/cuda/hopper/packing_tma_teams.cuh"
#include "bmm/cuda/routes.h"

namespace bitgnn::cuda::bmm {
namespace {

constexpr int64_t kLeastRows = 5000;     // fewer do not amortise starting large blocks
constexpr int64_t kManyRows = 1 << 15;   // enough even with few warps
constexpr int64_t kMostRows = 1 << 30;   // keeps row counts in 32 bits
constexpr int64_t kLeastFeatures = 32;   // shorter rows are bound by their count
constexpr int64_t kMostFeatures = 1536;  // longer rows leave room for too few warps
constexpr int64_t kMostColumns = 256;
constexpr int64_t kTeamFeatures = 256;  // rows of at least this length are shared by teams
constexpr int kLeastWarps = 4;
constexpr int kWarpsForFewRows = 8;
constexpr int kManyWarps = 12;

// True if teams of warps should share long rows. With few columns this gains nothing if a warp has
// only one tile, or if many warps fit.
bool suits_teams(const BulkPlan& plan, const Context& context) {
  const bool few = plan.tiles <= int64_t{context.device.sm_count} * plan.warps;
  const bool alone = plan.passes == 1 && (few || plan.warps >= kManyWarps);
  return plan.cols >= kTeamFeatures && !alone;
}

template <bool kSame, bool kShift, int kVector>
cudaError_t launch_vectors(const BmmArgs& args, const Context& context) {
  const BulkPlan plan = bulk_plan(args, context);
  if (!suits_teams(plan, context))
    return launch_bmm_packing_bulk<kSame, kShift, kVector>(args, plan, context);
  const TeamPlan teams = team_plan(args, context);
  return launch_bmm_packing_teams<kSame, kShift, kVector>(args, teams, context);
}

template <bool kSame, bool kShift>
cudaError_t launch(const BmmArgs& args, const Context& context) {
  if (args.size % 4 == 0) return launch_vectors<kSame, kShift, 4>(args, context);
  if (args.size % 2 == 0) return launch_vectors<kSame, kShift, 2>(args, context);
  return launch_vectors<kSame, kShift, 1>(args, context);
}

}  // namespace

bool suits_bulk(const BmmArgs& args, const Context& context) {
  const bool suits = context.device.is_hopper() && args.pack->type == FloatType::kFloat32 &&
                     packing_mode(args) == PackingMode::kCompared &&
                     args.pack->row_stride == args.size && args.size >= kLeastFeatures &&
                     args.size <= kMostFeatures && args.out_features <= kMostColumns &&
                     args.rows >= kLeastRows && args.rows < kMostRows && is_aligned(args.pack->x) &&
                     is_aligned(args.out_bits);
  return suits &&
         bulk_plan(args, context).warps >= (args.rows < kManyRows ? kWarpsForFewRows : kLeastWarps);
}

cudaError_t bmm_packing_bulk(const BmmArgs& args, const Context& context) {
  const bool same = args.bias == nullptr && args.threshold == nullptr;
  if (args.pack->threshold != nullptr)
    return same ? launch<true, true>(args, context) : launch<false, true>(args, context);
  return same ? launch<true, false>(args, context) : launch<false, false>(args, context);
}

}  // namespace bitgnn::cuda::bmm
