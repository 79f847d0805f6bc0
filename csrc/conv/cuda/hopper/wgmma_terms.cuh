// Terms of the warpgroup convolution that belong to the rows of a tile and to its outputs.
#pragma once

#include "conv/cuda/hopper/wgmma_pixels.cuh"

namespace bitgnn::cuda::conv {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ int find_class(const ConvAxis& axis, int at) {
  if (at < axis.leading) return at;
  return at < axis.trailing ? axis.leading : axis.leading + 1 + at - axis.trailing;
}

// The first output of a class; the inverse of find_class().
__device__ __forceinline__ int class_output(const ConvAxis& axis, int index) {
  return index <= axis.leading ? index : index - axis.leading - 1 + axis.trailing;
}

__device__ __forceinline__ void prefetch_line(const void* from) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(from));
}

// Describes the rows of a tile, and prefetches the addends of its outputs from `column` on into L2.
template <int kPitch, bool kAddend>
__device__ __forceinline__ void describe_rows(ConvRowInfo* rows, const int32_t* counts,
                                              const ConvAddArgs& args, const ConvPlan& plan,
                                              int tile, int column, int thread) {
  constexpr int kTerms = 9;
#pragma unroll 1
  for (int row = thread; row < kConvTileRows; row += kConvHelpers) {
    int sum = 0;
#pragma unroll
    for (int i = 0; i < kTerms; ++i)
      if (i < plan.taps) sum += counts[plan.window[i] + row];
#pragma unroll 1
    for (int i = kTerms; i < plan.taps; ++i) sum += counts[plan.window[i] + row];
    const FramePlace at(tile * kConvTileRows + row, plan);
    const bool exists = at.image < plan.images && at.y < plan.out_height && at.x < plan.out_width;
    const int index = exists ? find_class(plan.row_axis, at.y) * plan.column_axis.classes +
                                   find_class(plan.column_axis, at.x)
                             : 0;
    ConvRowInfo info;
    info.sum = sum;
    info.terms = index * kPitch;
    info.pixel = exists ? (at.image * plan.out_height + at.y) * plan.out_width + at.x : -1;
    info.addend = kAddend ? (at.image * static_cast<int>(args.addend_height) +
                             at.y * static_cast<int>(args.addend_stride_height)) *
                                    static_cast<int>(args.addend_width) +
                                at.x * static_cast<int>(args.addend_stride_width)
                          : 0;
    rows[row] = info;
    if (kAddend && args.addend != nullptr && exists) {
      const int channels = static_cast<int>(args.addend_channels);
      const auto* from = static_cast<const int16_t*>(args.addend) + int64_t{info.addend} * channels;
      constexpr int kLine = 64;  // addends
#pragma unroll
      for (int at = 0; at < kPitch - 16; at += kLine)
        if (column + at < channels) prefetch_line(from + column + at);
    }
  }
}

// The greatest total below the threshold. Totals of narrow addends are exact in float32 and far
// smaller than kFar; no total reaches NaN.
__device__ __forceinline__ int greatest_below(float threshold) {
  constexpr float kFar = 1 << 28;
  if (!(threshold <= kFar)) return 1 << 28;
  return static_cast<int>(ceilf(fmaxf(threshold, -kFar))) - 1;
}

// Bit mask of the taps of an axis that lie inside the image if the first one reads `at`.
__device__ __forceinline__ uint32_t inside_taps(int at, int kernel, int size) {
  const int first = max(-at, 0), last = min(kernel, size - at);
  return last > first ? (1u << last) - (1u << first) : 0;
}

// For every class: K, then one byte per tap, 1 if the tap lies inside and 0 otherwise.
__device__ __forceinline__ void make_masks(uint32_t* masks, const ConvArgs& a, const ConvPlan& plan,
                                           int thread) {
  const int width = static_cast<int>(a.kernel_width);
  const int taps = static_cast<int>(a.kernel_height) * width;
  for (int i = thread; i < plan.classes * (plan.masks + 1); i += kConvHelpers) {
    const int index = i / (plan.masks + 1), word = i % (plan.masks + 1) - 1;
    const int y = class_output(plan.row_axis, index / plan.column_axis.classes);
    const int x = class_output(plan.column_axis, index % plan.column_axis.classes);
    const uint32_t rows =
        inside_taps(y * static_cast<int>(a.stride_height) - static_cast<int>(a.padding_top),
                    static_cast<int>(a.kernel_height), static_cast<int>(a.height));
    const uint32_t columns =
        inside_taps(x * static_cast<int>(a.stride_width) - static_cast<int>(a.padding_left), width,
                    static_cast<int>(a.width));
    uint32_t mask = 0;
    if (word < 0) {
      mask = __popc(rows) * __popc(columns) * static_cast<uint32_t>(a.channels);
    } else {
      for (int byte = 0; byte < 4; ++byte) {
        const int tap = word * 4 + byte;
        if (tap < taps) mask |= (rows >> (tap / width) & columns >> (tap % width) & 1u) << 8 * byte;
      }
    }
    masks[i] = mask;
  }
}

// Terms of an output for every class: K - 2 |b|, or for bits the value that 2 popc(a & b) - |a| is
// compared with: dot >= limit where term + |a| - 2 popc(a & b) < 0. Tap counts are split into low
// and high bytes, twelve taps at a time.
template <int kColumns, ConvOutput kOutput>
__device__ __forceinline__ void make_terms(int32_t* table, const uint32_t* masks,
                                           const int32_t* counts, int taps, const ConvPlan& plan,
                                           int limit, bool exists) {
  constexpr int kMasks = 3;
  for (int begin = 0; begin < plan.masks; begin += kMasks) {
    uint32_t low[kMasks], high[kMasks];
#pragma unroll
    for (int i = 0; i < kMasks; ++i) {
      uint32_t count[4];
#pragma unroll
      for (int byte = 0; byte < 4; ++byte) {
        const int tap = (begin + i) * 4 + byte;
        count[byte] = exists && tap < taps ? static_cast<uint32_t>(__ldg(counts + tap)) : 0;
      }
      const uint32_t first = __byte_perm(count[0], count[1], 0x5140);
      const uint32_t second = __byte_perm(count[2], count[3], 0x5140);
      low[i] = __byte_perm(first, second, 0x5410);
      high[i] = __byte_perm(first, second, 0x7632);
    }
    const bool last = begin + kMasks >= plan.masks;
#pragma unroll 2
    for (int index = 0; index < plan.classes; ++index) {
      // Masks past the last are multiplied by counts of zero.
      const uint32_t* mask = masks + index * (plan.masks + 1);
      int32_t* to = table + index * ConvTable<kColumns, kOutput>::kPitch;
      uint32_t low_bits = 0, high_bits = 0;
#pragma unroll
      for (int i = 0; i < kMasks; ++i) {
        low_bits = __dp4a(low[i], mask[begin + i + 1], low_bits);
        high_bits = __dp4a(high[i], mask[begin + i + 1], high_bits);
      }
      const int before = begin == 0 ? static_cast<int>(mask[0]) : *to;
      const int term = before - 2 * static_cast<int>(low_bits + 256 * high_bits);
      *to = kOutput == ConvOutput::kBits && last ? ((limit - term + 1) >> 1) - 1 : term;
    }
  }
}

template <int kColumns, ConvOutput kOutput>
__device__ __forceinline__ void describe_outputs(ConvShared& shared, int32_t* table,
                                                 const uint32_t* masks, const ConvArgs& a,
                                                 const ConvPlan& plan, int column_tile, int buffer,
                                                 int thread) {
  using Table = ConvTable<kColumns, kOutput>;
  const int taps = static_cast<int>(a.kernel_height * a.kernel_width);
  for (int at = thread; at < kColumns; at += kConvHelpers) {
    const int output = column_tile * kColumns + at;
    const bool exists = output < a.out_channels;
    const int32_t* from = a.prepared + static_cast<int64_t>(output) * (taps + 2);
    const int limit = exists && kOutput == ConvOutput::kBits ? __ldg(from + taps) : 0;
    bool turned = exists && kOutput == ConvOutput::kBits && __ldg(from + taps + 1) != 0;
    int32_t* to = table + Table::place(at);
    make_terms<kColumns, kOutput>(to, masks, from, taps, plan, limit, exists);
    to += plan.classes * Table::kPitch;
    if constexpr (kOutput == ConvOutput::kFloat) {
      to[0] = __float_as_int(exists && a.out_scale != nullptr ? a.out_scale[output] : 1.0f);
      // -0 changes no number it is added to.
      to[Table::kPitch] = __float_as_int(exists && a.bias != nullptr ? a.bias[output] : -0.0f);
    }
    if constexpr (kOutput == ConvOutput::kSums) {
      to[0] = greatest_below(exists && a.threshold != nullptr ? a.threshold[output] : 0.0f);
      turned = exists && a.flip != nullptr && a.flip[output];
    }
    const uint32_t word = __ballot_sync(kFullWarp, turned);
    if (at % kWarp == 0) shared.turned[buffer][at / kWarp] = word;
  }
}

#endif

}  // namespace bitgnn::cuda::conv
