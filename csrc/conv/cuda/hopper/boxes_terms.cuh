// Tables that the box convolution builds before its pixels arrive: columns of ones after the
// weights, terms of the outputs for every border class, the units of a tile, and the rows of a
// lane.
#pragma once

#include "conv/cuda/hopper/boxes_plan.h"
#include "conv/cuda/hopper/wgmma_terms.cuh"
#include "conv/cuda/outputs.cuh"

namespace bitgnn::cuda::conv {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Fills the eight columns after a stage's weights with ones wherever weights have bits.
__device__ __forceinline__ void set_ones(unsigned char* stages, const ConvBoxPlan& plan, int thread,
                                         int threads) {
  constexpr int kRows = 8, kChunks = 8;
  for (int i = thread; i < plan.stages * kRows * kChunks; i += threads) {
    const int stage = i / (kRows * kChunks), row = i / kChunks % kRows, chunk = i % kChunks;
    const uint32_t v = stage * kChunks + chunk < plan.chunks ? ~0u : 0u;
    auto* const to = stages + stage * kBoxStageBytes + (kBoxColumns + row) * kConvStageRowBytes +
                     (chunk ^ row) * 16;
    *reinterpret_cast<uint4*>(to) = make_uint4(v, v, v, v);
  }
}

// Builds the units of a tile, relative to its first image and row.
__device__ __forceinline__ void make_units(BoxUnit* units, const ConvBoxPlan& plan, int thread) {
  if (thread >= plan.tile_units) return;
  if (plan.runs) {
    units[thread] = {thread * kBoxUnitRows, 0, 0, 0};
    return;
  }
  const int image = thread / plan.image_units, inside = thread - image * plan.image_units;
  const int line = inside / plan.row_units, part = inside - line * plan.row_units;
  BoxUnit unit;
  unit.image = image;
  unit.y = line * plan.unit_rows;
  unit.x = part * kBoxUnitRows;
  unit.start = image * plan.image_positions + unit.y * plan.pitch + unit.x;
  units[thread] = unit;
}

// Calls use(class, K, |b|) for an output and every step-th class.
template <class Use>
__device__ __forceinline__ void for_box_classes(const ConvArgs& a, const ConvBoxPlan& plan,
                                                const int32_t* counts, int first, int step,
                                                const Use& use) {
  const int height = static_cast<int>(a.kernel_height), width = static_cast<int>(a.kernel_width);
  int count[kBoxMostTaps];
#pragma unroll
  for (int tap = 0; tap < kBoxMostTaps; ++tap) count[tap] = tap < height * width ? counts[tap] : 0;
#pragma unroll 1
  for (int index = first; index < plan.classes; index += step) {
    const int y = class_output(plan.row_axis, index / plan.column_axis.classes);
    const int x = class_output(plan.column_axis, index % plan.column_axis.classes);
    const uint32_t rows =
        inside_taps(y * plan.stride_height - plan.padding_top, height, static_cast<int>(a.height));
    const uint32_t columns =
        inside_taps(x * plan.stride_width - plan.padding_left, width, static_cast<int>(a.width));
    uint32_t inside = 0;
    for (int i = 0; i < height; ++i)
      if ((rows >> i & 1) != 0) inside |= columns << (i * width);
    int set = 0;
#pragma unroll
    for (int tap = 0; tap < kBoxMostTaps; ++tap) set += (inside >> tap & 1) != 0 ? count[tap] : 0;
    use(index, __popc(inside) * static_cast<int>(a.channels), set);
  }
}

// Terms of the block's outputs. For sums: K - 2 |b|, then the values that totals must exceed. For
// bits, 16 bits each: t = 0x8000 - m with m the smallest 2 popc(a & b) - |a| that reaches the
// limit, in the order of box_bits().
template <ConvOutput kOutput>
__device__ __forceinline__ void make_box_terms(int32_t* terms, uint32_t* turned, const ConvArgs& a,
                                               const ConvBoxPlan& plan, int column_tile, int thread,
                                               int threads) {
  const int taps = static_cast<int>(a.kernel_height * a.kernel_width);
  const int output = thread % kBoxColumns;
  const int first = thread / kBoxColumns, step = threads / kBoxColumns;
  const int64_t channel = column_tile * kBoxColumns + output;
  const int32_t* from = a.prepared + channel * (taps + kPreparedExtra);
  bool turns;
  if constexpr (kOutput == ConvOutput::kBits) {
    const int most = taps * static_cast<int>(a.channels);
    const int limit = min(max(from[taps], -most), most + 1);
    turns = from[taps + 1] != 0;
    const int quad = output / 32, e = output / 8 % 4, i = output % 8;
    auto* const to =
        reinterpret_cast<uint16_t*>(terms) + 2 * (quad * kBoxQuadPitch + 2 * i + e / 2) + e % 2;
    for_box_classes(a, plan, from, first, step, [&](int index, int size, int set) {
      to[index * 2 * kBoxBitPitch] =
          static_cast<uint16_t>(0x8000 - set - ((limit - size + 1) >> 1));
    });
  } else {
    turns = a.flip != nullptr && a.flip[channel];
    for_box_classes(a, plan, from, first, step, [&](int index, int size, int set) {
      terms[index * kBoxSumPitch + output] = size - 2 * set;
    });
    if (first == 0)
      terms[plan.classes * kBoxSumPitch + output] =
          greatest_below(a.threshold != nullptr ? a.threshold[channel] : 0.0f);
  }
  if (first == 0) {
    const uint32_t word = __ballot_sync(kFullWarp, turns);
    if (thread % kWarp == 0) turned[thread / kWarp] = word;
  }
}

// The lane's two rows of every unit, in accumulator fragment layout.
struct BoxLane {
  int quad;
  int position[2];
  int y[2], x[2];  // unused if units run across row ends
  __device__ __forceinline__ BoxLane(const ConvBoxPlan& plan, int thread) {
    constexpr int kNowhere = 1 << 20;
    const int lane = thread % kWarp;
    quad = fragment_quad(lane);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      position[half] = thread / kWarp * kMmaRows + fragment_group(lane) + half * 8;
      y[half] = plan.row_units > 1 ? 0 : position[half] / plan.pitch;
      x[half] = y[half] < plan.unit_rows ? position[half] - y[half] * plan.pitch : kNowhere;
    }
  }
};

struct BoxRow {
  int pixel;  // output pixel, or -1
  int index;  // class of the pixel
};

__device__ __forceinline__ int class_index(const ConvAxis& axis, int at) {
  return at < axis.trailing ? min(at, axis.leading) : axis.leading + 1 + at - axis.trailing;
}

// `unit` holds absolute image and row numbers.
__device__ __forceinline__ BoxRow box_row(const ConvBoxPlan& plan, const BoxUnit& unit,
                                          const BoxLane& lane, int half) {
  int image = unit.image, y = unit.y + lane.y[half], x = unit.x + lane.x[half];
  bool exists = true;
  if (plan.runs) {
    const int at = unit.start + lane.position[half];
    const int inside = quotient(at, plan.by_image);
    const int rest = at - inside * plan.image_positions;
    const int row = quotient(rest, plan.by_pitch);
    exists = inside < plan.tile_images && row < plan.tile_rows;
    image = unit.image + inside;
    y = unit.y + row;
    x = rest - row * plan.pitch;
  }
  exists = exists && image < plan.images && y < plan.out_height && x < plan.out_width;
  const int index =
      class_index(plan.row_axis, y) * plan.column_axis.classes + class_index(plan.column_axis, x);
  return {exists ? (image * plan.out_height + y) * plan.out_width + x : -1, exists ? index : 0};
}

#endif

}  // namespace bitgnn::cuda::conv
