// Launches chains of fully connected layers, a cluster of blocks for every 16 rows.
#include "bitgnn/cuda/linear_chain.cuh"

#include <algorithm>

namespace bitgnn::cuda {
namespace {

constexpr int64_t kChainBlocks = 16;  // of a cluster: as many as Hopper allows

int64_t round_up(int64_t value, int64_t unit) { return ceil_div(value, unit) * unit; }

// Bytes of shared memory a block needs, and the plan behind them.
size_t plan_chain(ChainPlan& plan, const LinearChainArgs& args) {
  int64_t widest = 0, staged = 0;
  for (int l = 0; l < args.count; ++l) {
    const ChainLayer& layer = args.layers[l];
    widest = std::max(widest, chain_words(layer.size));
    const bool last = l + 1 == args.count;
    const int64_t slice =
        round_up(ceil_div(layer.outputs, kChainBlocks), last ? kChainColumns : kWordBits);
    plan.slice[l] = static_cast<int>(slice);
    if (!last) staged = std::max(staged, kChainRows * slice / kWordBits);
  }
  plan.rows_pitch = tile_pitch(static_cast<int>(widest));
  int64_t at = 2 * kChainRows * plan.rows_pitch;
  plan.staged = static_cast<int>(at);
  at += round_up(staged, 4);
  for (int l = 0; l < args.count; ++l) {
    const ChainLayer& layer = args.layers[l];
    plan.weights[l] = static_cast<int>(at);
    at += int64_t{plan.slice[l]} * tile_pitch(static_cast<int>(chain_words(layer.size)));
    plan.table[l] = static_cast<int>(at);
    at += round_up(plan.slice[l] * (l + 1 == args.count ? kLastTable : kHiddenTable), 4);
  }
  return static_cast<size_t>(at) * sizeof(int32_t);
}

}  // namespace

bool linear_chain_fits(const LinearChainArgs& args, const Context& context) {
  ChainPlan plan{};
  return context.device.capability == kDependentCapability &&
         plan_chain(plan, args) <= static_cast<size_t>(context.device.shared_bytes);
}

cudaError_t linear_chain(const LinearChainArgs& args, const Context& context) {
  if (args.rows == 0) return cudaSuccess;
  ChainPlan plan{};
  const size_t bytes = plan_chain(plan, args);
  cudaError_t status =
      cudaFuncSetAttribute(linear_chain_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           context.device.shared_bytes);
  if (status == cudaSuccess)
    status = cudaFuncSetAttribute(linear_chain_kernel,
                                  cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {static_cast<unsigned>(kChainBlocks), 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid_size(ceil_div(args.rows, kChainRows) * kChainBlocks));
  config.blockDim = dim3(kChainThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = context.stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, linear_chain_kernel, args, plan);
}

}  // namespace bitgnn::cuda
