// Plans and launches chains of fully connected layers: one cluster of blocks for every 16 rows, or
// 48 if there are many.
#include "core/check.h"
#include "whole_model/cuda/hopper/linear_chain.cuh"

#include <algorithm>

namespace bitgnn::cuda::whole_model {
namespace {

constexpr int kSomeRows = 16, kManyRows = 48;  // per cluster
constexpr int64_t kMostSomeRows = 256;         // in total; with more, kManyRows per cluster

int64_t round_up(int64_t value, int64_t unit) { return ceil_div(value, unit) * unit; }

// Fills in the plan for `rows` rows per cluster and returns the bytes of shared memory per block.
size_t plan_chain(ChainPlan& plan, const LinearChainArgs& args, int rows) {
  int64_t widest = 0, at = 0;
  const auto take = [&](int64_t words) {
    const int64_t place = at;
    at += round_up(words, 4);
    return static_cast<int>(place);
  };
  for (int l = 0; l < args.count; ++l) {
    const ChainLayer& layer = args.layers[l];
    const bool last = l + 1 == args.count;
    const int64_t words = chain_words(layer.size);
    const int64_t slice =
        round_up(ceil_div(layer.outputs, kChainBlocks), last ? kChainColumns : kWordBits);
    plan.slice[l] = static_cast<int>(slice);
    plan.weights[l] = take(slice * tile_pitch(static_cast<int>(words)));
    plan.table[l] = take(last ? slice * kLastTable : slice + slice / kWordBits);
    plan.reciprocal[l] = static_cast<uint32_t>(ceil_div(int64_t{1} << 32, words / 4));
    widest = std::max(widest, words);
  }
  for (int& place : plan.rows) place = take(widest * chain_rows_pitch(rows));
  plan.barriers = take(4);
  return static_cast<size_t>(at) * sizeof(int32_t);
}

// Launches one cluster for every kRows rows. Returns false if blocks cannot hold the weights and
// the bits of so many.
template <int kRows>
bool launch(cudaError_t& status, const LinearChainArgs& args, const Context& context) {
  ChainPlan plan{};
  const size_t bytes = plan_chain(plan, args, kRows);
  if (bytes > static_cast<size_t>(context.device.shared_bytes)) return false;
  const auto kernel = linear_chain_kernel<kRows>;
  status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                context.device.shared_bytes);
  if (status != cudaSuccess) return true;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {kChainBlocks, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid_size(ceil_div(args.rows, kRows) * kChainBlocks));
  config.blockDim = dim3(chain_threads(kRows));
  config.dynamicSmemBytes = bytes;
  config.stream = context.stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  status = cudaLaunchKernelEx(&config, kernel, args, plan);
  return true;
}

}  // namespace

cudaError_t linear_chain(const LinearChainArgs& args, const Context& context) {
  ChainPlan plan{};
  const bool fits =
      context.device.is_hopper() &&
      plan_chain(plan, args, kSomeRows) <= static_cast<size_t>(context.device.shared_bytes);
  BITGNN_CHECK(fits,
               "linear_chain: layers must have weights that fit the shared memory of a cluster of "
               "blocks, on a device of compute capability 9.0, got more, or another device");
  if (args.rows == 0) return cudaSuccess;
  cudaError_t status = cudaErrorInvalidValue;
  if (args.rows > kMostSomeRows && launch<kManyRows>(status, args, context)) return status;
  launch<kSomeRows>(status, args, context);
  return status;
}

}  // namespace bitgnn::cuda::whole_model
