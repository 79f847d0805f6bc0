// Launches the sums of narrow float rows over a pattern.
#include "bspmm/arguments.h"
#include "bspmm/cuda/floats/slots.cuh"

namespace bitgnn::cuda::bspmm {
namespace {

constexpr int64_t kShortPieces = 2;  // pieces that a group always takes alone
constexpr int64_t kLongOfMean = 4;   // multiple of the mean degree that makes a row long

template <int kWidth, int kLanes>
cudaError_t launch(const SlotSumsArgs& d, const Context& context) {
  using Group = SlotGroup<kWidth, kLanes>;
  const AggregateArgs& a = d.sums;
  const int64_t mean = a.edges / a.rows;
  const int64_t pieces = ceil_div(kLongOfMean * mean, kSumPiece);
  const int64_t long_degree = (pieces > kShortPieces ? pieces : kShortPieces) * kSumPiece;
  const auto long_blocks = static_cast<unsigned>(context.device.sm_count);
  const dim3 grid(grid_size(ceil_div(a.rows, Group::kGroups) + long_blocks),
                  grid_size(ceil_div(a.features, Group::kColumns)));
  return launch_dependent(aggregate_slots_kernel<kWidth, kLanes>, grid, kSlotThreads, 0, context, d,
                          long_degree, long_blocks);
}

}  // namespace

cudaError_t aggregate_slots(const SlotSumsArgs& d, const Context& context) {
  constexpr int64_t kWidth = 4;
  const AggregateArgs& a = d.sums;
  if (a.rows == 0 || a.features == 0) return cudaSuccess;
  // Whole fragments: the last one may read the gap between a row's features and the next row.
  const int64_t fragments = ceil_div(a.features, kWidth);
  const bool vectors = reinterpret_cast<uintptr_t>(a.x) % (kWidth * sizeof(float)) == 0 &&
                       a.x_stride % kWidth == 0 && a.x_stride >= fragments * kWidth;
  if (!vectors) return a.features <= 8 ? launch<1, 8>(d, context) : launch<1, 32>(d, context);
  if (fragments <= 1) return launch<kWidth, 1>(d, context);
  if (fragments <= 2) return launch<kWidth, 2>(d, context);
  if (fragments <= 4) return launch<kWidth, 4>(d, context);
  return fragments <= 8 ? launch<kWidth, 8>(d, context) : launch<kWidth, 16>(d, context);
}

}  // namespace bitgnn::cuda::bspmm
