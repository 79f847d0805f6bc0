// Terms of the warpgroup convolution: what belongs to the rows of a tile and to its outputs.
#pragma once

#include <type_traits>

#include "bitgnn/cuda/conv_wgmma_pixels.cuh"

namespace bitgnn::cuda {

enum class ConvOutput { kBits, kFloat, kInt, kSums };

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ int find_class(const ConvAxis& axis, int at) {
  if (at < axis.leading) return at;
  return at < axis.trailing ? axis.leading : axis.leading + 1 + at - axis.trailing;
}

// The first output of a class; the reverse of find_class().
__device__ __forceinline__ int class_output(const ConvAxis& axis, int index) {
  return index <= axis.leading ? index : index - axis.leading - 1 + axis.trailing;
}

template <int kColumns>
__device__ __forceinline__ void describe_rows(ConvShared& shared, const int32_t* counts,
                                              const ConvAddArgs& args, const ConvPlan& plan,
                                              int tile, int buffer, int thread) {
  const ConvArgs& a = args.conv;
  for (int row = thread; row < kConvTileRows; row += kConvHelpers) {
    int sum = 0;
    for (int i = 0; i < plan.window_terms; ++i) sum += counts[plan.window[i] + row];
    const FramePlace at(tile * kConvTileRows + row, plan);
    const bool exists = at.image < a.images && at.y < a.out_height && at.x < a.out_width;
    const int index = exists ? find_class(plan.row_axis, at.y) * plan.column_axis.classes +
                                   find_class(plan.column_axis, at.x)
                             : 0;
    shared.row_sum[buffer][row] = sum;
    shared.row_class[buffer][row] = index * (kColumns + kConvTablePadding);
    shared.row_pixel[buffer][row] =
        exists ? static_cast<int>((at.image * a.out_height + at.y) * a.out_width + at.x) : -1;
    if (args.addend != nullptr)
      shared.row_addend[buffer][row] = static_cast<int>(
          (at.image * args.addend_height + at.y * args.addend_stride_height) * args.addend_width +
          at.x * args.addend_stride_width);
  }
}

// The least integer whose float is at least the threshold.
__device__ __forceinline__ int least_total(float threshold) {
  constexpr float kExact = 1 << 24;
  if (!(threshold <= 2147483520.0f)) return INT32_MAX;  // NaN too
  if (threshold <= -2147483648.0f) return INT32_MIN;
  if (fabsf(threshold) <= kExact) return static_cast<int>(ceilf(threshold));
  int64_t low = INT32_MIN, high = INT32_MAX;
  while (low < high) {
    const int64_t middle = (low + high) >> 1;
    if (__int2float_rn(static_cast<int>(middle)) >= threshold) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return static_cast<int>(low);
}

// What a thread's masked sums of counts are made of: a kernel of at most kSide by kSide taps.
template <int kSide>
struct TapCounts {
  int count[kSide * kSide];

  __device__ __forceinline__ TapCounts(const int32_t* from, int height, int width, bool exists) {
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
#pragma unroll
      for (int j = 0; j < kSide; ++j)
        count[i * kSide + j] = exists && i < height && j < width ? __ldg(from + i * width + j) : 0;
    }
  }
  // The sum over the taps of the rows and columns whose bits are set.
  __device__ __forceinline__ int sum(uint32_t rows, uint32_t columns) const {
    int result = 0;
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      int row = 0;
#pragma unroll
      for (int j = 0; j < kSide; ++j) row += (columns >> j & 1) != 0 ? count[i * kSide + j] : 0;
      result += (rows >> i & 1) != 0 ? row : 0;
    }
    return result;
  }
};

// The same for big kernels, whose counts stay in memory.
template <>
struct TapCounts<kConvLongestSide> {
  const int32_t* from;
  int width;

  __device__ __forceinline__ TapCounts(const int32_t* counts, int, int kernel_width, bool exists)
      : from(exists ? counts : nullptr), width(kernel_width) {}

  __device__ __forceinline__ int sum(uint32_t rows, uint32_t columns) const {
    int result = 0;
    for (uint32_t i = from != nullptr ? rows : 0; i != 0; i &= i - 1)
      for (uint32_t j = columns; j != 0; j &= j - 1)
        result +=
            __ldg(from + (__ffs(static_cast<int>(i)) - 1) * width + __ffs(static_cast<int>(j)) - 1);
    return result;
  }
};

// The taps of an axis, one a bit, that lie inside the image where the first reads `at`.
__device__ __forceinline__ uint32_t inside_taps(int at, int kernel, int size) {
  const int first = max(-at, 0), last = min(kernel, size - at);
  return last > first ? (1u << last) - (1u << first) : 0;
}

// Terms of an output for every class: K - 2 |b|, or for bits what 2 popc(a & b) - |a| is compared
// with: dot >= limit where term + |a| - 2 popc(a & b) < 0.
template <int kSide, int kColumns, ConvOutput kOutput>
__device__ __forceinline__ void make_terms(int32_t* table, const int32_t* from, const ConvArgs& a,
                                           const ConvPlan& plan, int limit, bool exists) {
  const int height = static_cast<int>(a.kernel_height), width = static_cast<int>(a.kernel_width);
  const TapCounts<kSide> counts(from, height, width, exists);
  for (int column = 0; column < plan.column_axis.classes; ++column) {
    const int x = class_output(plan.column_axis, column) * static_cast<int>(a.stride_width) -
                  static_cast<int>(a.padding_left);
    const uint32_t columns = inside_taps(x, width, static_cast<int>(a.width));
    for (int row = 0; row < plan.row_axis.classes; ++row) {
      const int y = class_output(plan.row_axis, row) * static_cast<int>(a.stride_height) -
                    static_cast<int>(a.padding_top);
      const uint32_t rows = inside_taps(y, height, static_cast<int>(a.height));
      const int term = __popc(rows) * __popc(columns) * static_cast<int>(a.channels) -
                       2 * counts.sum(rows, columns);
      table[(row * plan.column_axis.classes + column) * (kColumns + kConvTablePadding)] =
          kOutput == ConvOutput::kBits ? ((limit - term + 1) >> 1) - 1 : term;
    }
  }
}

template <int kColumns, ConvOutput kOutput>
__device__ __forceinline__ void describe_outputs(ConvShared& shared, int32_t* table,
                                                 const ConvArgs& a, const ConvPlan& plan,
                                                 int column_tile, int buffer, int thread) {
  const int taps = static_cast<int>(a.kernel_height * a.kernel_width);
  const auto longest = static_cast<int>(max(a.kernel_height, a.kernel_width));
  for (int at = thread; at < kColumns; at += kConvHelpers) {
    const int output = column_tile * kColumns + at;
    const bool exists = output < a.out_channels;
    const int32_t* from = a.prepared + static_cast<int64_t>(output) * (taps + 2);
    const int limit = exists ? __ldg(from + taps) : 0;
    bool turned = exists && kOutput == ConvOutput::kBits && __ldg(from + taps + 1) != 0;
    const auto make = [&](auto side) {
      make_terms<decltype(side)::value, kColumns, kOutput>(table + at, from, a, plan, limit,
                                                           exists);
    };
    if (longest <= 3) {
      make(std::integral_constant<int, 3>{});
    } else if (longest <= 5) {
      make(std::integral_constant<int, 5>{});
    } else {
      make(std::integral_constant<int, kConvLongestSide>{});
    }
    if constexpr (kOutput == ConvOutput::kFloat) {
      shared.scale[buffer][at] = exists && a.out_scale != nullptr ? a.out_scale[output] : 1.0f;
      // -0 changes no number it is added to.
      shared.bias[buffer][at] = exists && a.bias != nullptr ? a.bias[output] : -0.0f;
    }
    if constexpr (kOutput == ConvOutput::kSums) {
      shared.limit[buffer][at] =
          least_total(exists && a.threshold != nullptr ? a.threshold[output] : 0.0f);
      turned = exists && a.flip != nullptr && a.flip[output];
    }
    const uint32_t word = __ballot_sync(kFullWarp, turned);
    if (at % kWarp == 0) shared.turned[buffer][at / kWarp] = word;
  }
}

#endif

}  // namespace bitgnn::cuda
