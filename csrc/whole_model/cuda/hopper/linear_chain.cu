// Plans and launches chains of fully connected layers: one cluster of blocks for every 16 rows, or
// 48 if there are many.
#include "whole_model/cuda/hopper/linear_chain_rows.cuh"

#include <algorithm>

namespace bitgnn::cuda::whole_model {
namespace {

constexpr int64_t kChainBlocks = 16;           // per cluster, the most that Hopper allows
constexpr int kSomeRows = 16, kManyRows = 48;  // per cluster of kManyBlocks
constexpr int64_t kMostSomeRows = 256;         // in total; with more, kManyRows per cluster

int64_t round_up(int64_t value, int64_t unit) { return ceil_div(value, unit) * unit; }

// Fills in the plan and returns the bytes of shared memory per block.
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

// The same for the kernel for many rows, with `rows` of them per cluster.
size_t plan_many_rows(ManyRowsPlan& plan, const LinearChainArgs& args, int rows) {
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
        round_up(ceil_div(layer.outputs, kManyBlocks), last ? kChainColumns : kWordBits);
    plan.slice[l] = static_cast<int>(slice);
    plan.weights[l] = take(slice * tile_pitch(static_cast<int>(words)));
    plan.table[l] = take(last ? slice * kLastTable : slice + slice / kWordBits);
    plan.reciprocal[l] = static_cast<uint32_t>(ceil_div(int64_t{1} << 32, words / 4));
    widest = std::max(widest, words);
  }
  for (int& place : plan.rows) place = take(widest * many_rows_pitch(rows));
  plan.barriers = take(4);
  return static_cast<size_t>(at) * sizeof(int32_t);
}

// Launches one cluster for every `rows` rows.
template <class Plan>
cudaError_t launch(void (*kernel)(LinearChainArgs, Plan), const LinearChainArgs& args,
                   const Plan& plan, size_t bytes, int rows, int blocks, int threads,
                   const Context& context) {
  cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            context.device.shared_bytes);
  if (status == cudaSuccess)
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid_size(ceil_div(args.rows, rows) * blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = bytes;
  config.stream = context.stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, kernel, args, plan);
}

// Returns false if blocks cannot hold the weights and the bits of kRows rows.
template <int kRows>
bool launch_many_rows(cudaError_t& status, const LinearChainArgs& args, const Context& context) {
  ManyRowsPlan plan{};
  const size_t bytes = plan_many_rows(plan, args, kRows);
  if (bytes > static_cast<size_t>(context.device.shared_bytes)) return false;
  status = launch(linear_chain_rows_kernel<kRows>, args, plan, bytes, kRows, kManyBlocks,
                  many_rows_threads(kRows), context);
  return true;
}

}  // namespace

bool linear_chain_fits(const LinearChainArgs& args, const Context& context) {
  const auto most = static_cast<size_t>(context.device.shared_bytes);
  ChainPlan plan{};
  ManyRowsPlan many{};
  return context.device.is_hopper() &&
         (plan_chain(plan, args) <= most || plan_many_rows(many, args, kSomeRows) <= most);
}

cudaError_t linear_chain(const LinearChainArgs& args, const Context& context) {
  if (args.rows == 0) return cudaSuccess;
  cudaError_t status = cudaSuccess;
  if (args.rows > kMostSomeRows && launch_many_rows<kManyRows>(status, args, context))
    return status;
  if (launch_many_rows<kSomeRows>(status, args, context)) return status;
  ChainPlan plan{};
  const size_t bytes = plan_chain(plan, args);
  return launch(linear_chain_kernel, args, plan, bytes, kChainRows, static_cast<int>(kChainBlocks),
                kChainThreads, context);
}

}  // namespace bitgnn::cuda::whole_model
