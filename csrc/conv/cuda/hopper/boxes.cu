// Launches Hopper's box convolution.
#include "conv/cuda/hopper/boxes.cuh"

#include <algorithm>

#include "conv/cuda/routes.h"
#include "core/cuda/hopper/tensor_map.h"
#include "core/cuda/shared_memory.h"

namespace bitgnn::cuda::conv {
namespace {

constexpr int64_t kWordBytes = 4;

cudaError_t encode_pixels(CUtensorMap& map, const ConvArgs& a, const ConvBoxPlan& plan) {
  const int64_t pixel = a.channels / 8, row = pixel * a.width, image = row * a.height;
  const int64_t box_rows = plan.image_positions / plan.pitch;
  if (plan.long_rows)
    return encode_boxes(map, {a.x,
                              8,
                              {2 * a.width, a.height, a.images, 1, 1},
                              {row, image, image, image},
                              {2 * plan.pitch, box_rows * a.stride_height, plan.tile_images, 1, 1},
                              {1, a.stride_height, 1, 1, 1},
                              false});
  return encode_boxes(map, {a.x,
                            4,
                            {4, a.width, a.height, a.images, plan.pieces},
                            {pixel, row, image, 16},
                            {4, plan.pitch * a.stride_width, box_rows * a.stride_height,
                             plan.tile_images, plan.pieces},
                            {1, a.stride_width, a.stride_height, 1, 1},
                            false});
}

// Weight rows in the order of the product's columns: for bits as box_bits() expects them, otherwise
// eight consecutive outputs per lane.
cudaError_t encode_columns(CUtensorMap& map, const ConvArgs& a, bool bits) {
  const int64_t words = a.taps() * words_for(a.channels), row = words * kWordBytes;
  const int64_t all = a.out_channels / 32;
  if (bits)
    return encode_boxes(map, {a.w,
                              4,
                              {words, 2, all, 2, 8},
                              {8 * row, 32 * row, 16 * row, row},
                              {kSwizzleWords, 2, 4, 2, 8},
                              {1, 1, 1, 1, 1},
                              true});
  return encode_boxes(map, {a.w,
                            4,
                            {words, 2, 4, 4, all},
                            {row, 8 * row, 2 * row, 32 * row},
                            {kSwizzleWords, 2, 4, 4, 4},
                            {1, 1, 1, 1, 1},
                            true});
}

// Tensor map of units of 16-bit numbers, 64 channels at a time, of every step-th pixel.
cudaError_t encode_units(CUtensorMap& map, const void* from, int64_t images, int64_t height,
                         int64_t width, int64_t channels, int64_t step_height, int64_t step_width,
                         const ConvBoxPlan& plan) {
  constexpr int64_t kBytes = 2;
  const int64_t pixel = channels * kBytes, row = pixel * width, image = row * height;
  const int64_t box_width = std::min(plan.out_width, kBoxUnitRows);
  return encode_boxes(
      map, {from,
            kBytes,
            {channels, width, height, images, 1},
            {pixel, row, image, image},
            {kBoxPartChannels, box_width * step_width, plan.unit_rows * step_height, 1, 1},
            {1, step_width, step_height, 1, 1},
            true});
}

template <int kGroups, int kBlocks, ConvOutput kOutput>
cudaError_t launch_box(const ConvAddArgs& args, bool prefetches, const Context& context) {
  const ConvArgs& a = args.conv;
  constexpr bool kBits = kOutput == ConvOutput::kBits;
  ConvBoxPlan plan;
  if (a.prepared == nullptr || !plan_conv_box(plan, args, kOutput, kGroups, context.device))
    return cudaErrorInvalidValue;
  plan.prefetches = prefetches;
  BoxMaps maps{};
  cudaError_t status = encode_pixels(maps.pixels, a, plan);
  if (status == cudaSuccess) status = encode_columns(maps.weights, a, kBits);
  if (status == cudaSuccess && args.addend != nullptr)
    status = encode_units(maps.addends, args.addend, a.images, args.addend_height,
                          args.addend_width, args.addend_channels, args.addend_stride_height,
                          args.addend_stride_width, plan);
  if (status == cudaSuccess && args.sums != nullptr)
    status = encode_units(maps.sums, args.sums, a.images, a.out_height, a.out_width, a.out_channels,
                          1, 1, plan);
  if (status != cudaSuccess) return status;
  const auto kernel = conv_box_kernel<kGroups, kBlocks, kOutput>;
  status = grant_shared_memory(kernel, context.device.shared_bytes);
  if (status != cudaSuccess) return status;
  return launch_dependent(kernel, grid_size(int64_t{plan.groups} * plan.column_tiles),
                          kGroups * 128, static_cast<size_t>(plan.shared_bytes), context, args,
                          maps, plan);
}

}  // namespace

cudaError_t conv_box(const ConvAddArgs& args, bool adds, bool prefetches, const Context& context) {
  if (adds) return launch_box<kBoxSumGroups, 1, ConvOutput::kSums>(args, prefetches, context);
  ConvBoxPlan plan;
  if (plan_conv_box_bits(plan, args, context.device) == kBoxLongGroups)
    return launch_box<kBoxLongGroups, 1, ConvOutput::kBits>(args, prefetches, context);
  return launch_box<kBoxBitGroups, 2, ConvOutput::kBits>(args, prefetches, context);
}

}  // namespace bitgnn::cuda::conv
