// Launches the product of very many ternary rows with resident weights: the rows are packed, then
// each block keeps the weights of its columns in shared memory.
#include "ternary/cuda/hopper/linear_resident.cuh"

#include "core/cuda/hopper/tensor_map.h"
#include "core/cuda/shared_memory.h"
#include "ternary/cuda/pack/stream_launch.cuh"
#include "ternary/cuda/routes.h"
#include "ternary/cuda/with_result_type.h"

namespace bitgnn::cuda::ternary {
namespace {

template <class T>
cudaError_t launch(const TernaryBmmArgs& a, const int32_t* planes, const int32_t* differences,
                   const Residence& residence, const Context& context) {
  ResidentPlan plan{};
  plan.words = static_cast<int>(words_for(a.size));
  plan.chunks = static_cast<int>(residence.chunks);
  plan.stages = static_cast<int>(residence.stages);
  plan.lanes = static_cast<int>(residence.lanes);
  plan.row_blocks = static_cast<int>(residence.row_blocks);
  plan.differences = differences;
  CUtensorMap x_map, w_map;
  cudaError_t status = encode_rows(x_map, planes, a.rows, int64_t{2} * plan.words, kWgmmaRows);
  if (status != cudaSuccess) return status;
  constexpr int kTogether = 8;  // adjacent columns stored by a lane
  status =
      encode_weights(w_map, a.w, a.out_features, plan.words, kResidentColumns, kTogether, false);
  if (status != cudaSuccess) return status;
  const int64_t bytes = residence.shared_bytes(residence.stages);
  status = grant_shared_memory(ternary_resident_kernel<T>, bytes);
  if (status != cudaSuccess) return status;
  return launch_dependent(ternary_resident_kernel<T>,
                          dim3(grid_size(residence.slabs * residence.lanes)), kResidentThreads,
                          static_cast<size_t>(bytes), context, a, x_map, w_map, plan);
}

}  // namespace

cudaError_t linear_ternary_resident(const TernaryLinearArgs& args, const Context& context) {
  const TernaryBmmArgs& a = args.product;
  const int64_t words = words_for(a.size);
  auto* planes = static_cast<int32_t*>(
      context.workspace.take(static_cast<size_t>(a.rows * (2 * words + 1)) * sizeof(int32_t)));
  TernaryPackArgs pack = args.pack;
  pack.words = planes;
  pack.counts = planes + a.rows * 2 * words;
  const cudaError_t status = stream_ternary(pack, CountedWeights{}, context);
  if (status != cudaSuccess) return status;
  const Residence residence(a, context);
  return with_result_type(a.type, [&](auto zero) {
    return launch<decltype(zero)>(a, planes, pack.counts, residence, context);
  });
}

}  // namespace bitgnn::cuda::ternary
