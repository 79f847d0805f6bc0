// Launches the warpgroup convolution.
#include <algorithm>

#include "conv/cuda/hopper/wgmma.cuh"
#include "conv/cuda/routes.h"
#include "core/cuda/hopper/tensor_map.h"
#include "core/cuda/shared_memory.h"

namespace bitgnn::cuda::conv {
namespace {

// Copies weight rows in the order of encode_weights(), zero-padded to whole 16-byte units and whole
// tiles.
__global__ void order_conv_weights(const int32_t* w, int64_t rows, int words, int64_t all_rows,
                                   int pitch, int columns, int chunk, int32_t* ordered) {
  let_next_start();
  wait_for_previous();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= all_rows * pitch) return;
  const auto word = static_cast<int>(at % pitch);
  const auto column = static_cast<int>(at / pitch % columns);
  const int of_lane = column / 8 * 2 + column % 2;
  const int64_t row =
      at / pitch - column + of_lane / chunk * 4 * chunk + column % 8 / 2 * chunk + of_lane % chunk;
  ordered[at] = word < words && row < rows ? w[row * words + word] : 0;
}

template <int kColumns, ConvOutput kOutput>
cudaError_t launch(const ConvAddArgs& args, const ConvPlan& plan, const CUtensorMap& w_map,
                   const Context& context) {
  const auto kernel = conv_wgmma_kernel<kColumns, kOutput>;
  const cudaError_t status = grant_shared_memory(kernel, context.device.shared_bytes);
  if (status != cudaSuccess) return status;
  const int64_t units = static_cast<int64_t>(plan.tiles) * plan.column_tiles;
  const int64_t blocks = plan.groups > 0 ? int64_t{plan.groups} * plan.column_tiles
                                         : std::min<int64_t>(units, context.device.sm_count);
  return launch_dependent(kernel, grid_size(blocks), kConvThreads,
                          static_cast<size_t>(plan.shared_bytes), context, args, w_map, plan);
}

ConvOutput output_of(const ConvAddArgs& args, bool adds) {
  if (adds) return ConvOutput::kSums;
  if (args.conv.out_bits != nullptr) return ConvOutput::kBits;
  return args.conv.out_float != nullptr ? ConvOutput::kFloat : ConvOutput::kInt;
}

template <int kColumns>
cudaError_t run(const ConvAddArgs& args, ConvOutput output, const ConvPlan& plan,
                const CUtensorMap& w_map, const Context& context) {
  switch (output) {
    case ConvOutput::kSums:
      return launch<kColumns, ConvOutput::kSums>(args, plan, w_map, context);
    case ConvOutput::kBits:
      return launch<kColumns, ConvOutput::kBits>(args, plan, w_map, context);
    case ConvOutput::kFloat:
      return launch<kColumns, ConvOutput::kFloat>(args, plan, w_map, context);
    default:
      return launch<kColumns, ConvOutput::kInt>(args, plan, w_map, context);
  }
}

}  // namespace

cudaError_t conv_wgmma(const ConvAddArgs& args, bool adds, const Context& context) {
  const ConvArgs& a = args.conv;
  if (a.prepared == nullptr) return cudaErrorInvalidValue;
  ConvPlan plan;
  const int columns = conv_tile_columns(a);
  if (!plan_conv(plan, a, columns, context.device)) return cudaErrorInvalidValue;
  const ConvOutput output = output_of(args, adds);
  const int chunk = conv_chunk(columns, output);
  const int64_t words = a.taps() * words_for(a.channels);
  CUtensorMap w_map{};
  if (words % 4 == 0 && a.out_channels % columns == 0) {
    const cudaError_t status =
        encode_weights(w_map, a.w, a.out_channels, words, columns, chunk, false);
    if (status != cudaSuccess) return status;
  } else {
    constexpr int kThreads = 256;
    const int64_t pitch = (words + 3) / 4 * 4;
    const int64_t rows = int64_t{plan.column_tiles} * columns;
    auto* ordered = static_cast<int32_t*>(
        context.workspace.take(static_cast<size_t>(rows * pitch) * sizeof(int32_t)));
    cudaError_t status =
        launch_dependent(order_conv_weights, grid_size(ceil_div(rows * pitch, kThreads)), kThreads,
                         0, context, a.w, a.out_channels, static_cast<int>(words), rows,
                         static_cast<int>(pitch), columns, chunk, ordered);
    if (status != cudaSuccess) return status;
    status = encode_weights(w_map, ordered, rows, pitch, columns, chunk, true);
    if (status != cudaSuccess) return status;
  }
  return columns == 64 ? run<64>(args, output, plan, w_map, context)
                       : run<128>(args, output, plan, w_map, context);
}

}  // namespace bitgnn::cuda::conv
