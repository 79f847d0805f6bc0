// Epilogue of the warpgroup convolution: sums of 128 positions to bits, values or residual sums.
#pragma once

#include "bitgnn/cuda/bmm_slab.cuh"
#include "bitgnn/cuda/conv_wgmma_helpers.cuh"

namespace bitgnn::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// What a lane knows of one of its rows.
struct ConvTileRow {
  int32_t sum;
  int32_t pixel;
  int32_t addend;
  const int32_t* terms;
};

__device__ __forceinline__ ConvTileRow load_conv_row(const ConvShared& shared, const int32_t* table,
                                                     int buffer, int row, int quad) {
  return {shared.row_sum[buffer][row], shared.row_pixel[buffer][row],
          shared.row_addend[buffer][row], table + shared.row_class[buffer][row] + quad * 2};
}

// Pushes a bit, the sign of n, from below.
__device__ __forceinline__ uint32_t push_sign(uint32_t bits, int32_t n) {
  return __funnelshift_l(static_cast<uint32_t>(n), bits, 1);
}

// Writes the words of two rows: bit 2 j + e of `low` is column 8 j + 2 quad + e of the first row,
// of `high` of the second.
template <int kColumns>
__device__ __forceinline__ void store_conv_bits(const ConvArgs& a, const uint32_t* turned,
                                                uint32_t low, uint32_t high, int column,
                                                int32_t first_pixel, int32_t second_pixel,
                                                int quad) {
  constexpr int kWords = kColumns / 32;
  const uint2 words =
      kColumns == 128 ? gather_words(low, high, quad) : gather_words(low | high << 16, 0, quad);
  const int at = quad * 2;
  if (at >= 2 * kWords) return;
  const int word = at % kWords;
  const int32_t pixel = at < kWords ? first_pixel : second_pixel;
  if (pixel < 0) return;
  const int all = static_cast<int>(a.out_channels / 32);
  const int first = column / 32 + word;
  int32_t* to = a.out_bits + static_cast<int64_t>(pixel) * all + first;
  const uint32_t x = words.x ^ turned[word], y = words.y ^ turned[word + 1];
  if (all % 2 == 0) {
    if (first < all) *reinterpret_cast<uint2*>(to) = make_uint2(x, y);
  } else {
    if (first < all) to[0] = static_cast<int32_t>(x);
    if (first + 1 < all) to[1] = static_cast<int32_t>(y);
  }
}

template <int kColumns>
__device__ __forceinline__ void store_conv_signs(const ConvArgs& a, const uint32_t* turned,
                                                 const int32_t (&sum)[kColumns / 2],
                                                 const ConvTileRow (&row)[2], int column,
                                                 int quad) {
  uint32_t low = 0, high = 0;
#pragma unroll
  for (int j = kColumns / 8 - 1; j >= 0; --j) {
    const int2 first = *reinterpret_cast<const int2*>(row[0].terms + j * 8);
    const int2 second = *reinterpret_cast<const int2*>(row[1].terms + j * 8);
    low = push_sign(low, first.y + row[0].sum - 2 * sum[4 * j + 1]);
    low = push_sign(low, first.x + row[0].sum - 2 * sum[4 * j]);
    high = push_sign(high, second.y + row[1].sum - 2 * sum[4 * j + 3]);
    high = push_sign(high, second.x + row[1].sum - 2 * sum[4 * j + 2]);
  }
  store_conv_bits<kColumns>(a, turned, low, high, column, row[0].pixel, row[1].pixel, quad);
}

__device__ __forceinline__ int2 conv_dots(const ConvTileRow& row, const int32_t* sum, int j) {
  const int2 term = *reinterpret_cast<const int2*>(row.terms + j * 8);
  return make_int2(4 * sum[0] - 2 * row.sum + term.x, 4 * sum[1] - 2 * row.sum + term.y);
}

// Float or integer values, two next to each other a lane.
template <int kColumns, ConvOutput kOutput>
__device__ __forceinline__ void store_conv_values(const ConvArgs& a, const ConvShared& shared,
                                                  int buffer, const int32_t (&sum)[kColumns / 2],
                                                  const ConvTileRow (&row)[2], int column,
                                                  int quad) {
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
    const int inside = j * 8 + quad * 2;
    if (column + j * 8 >= a.out_channels) break;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row[half].pixel < 0) continue;
      const int2 dots = conv_dots(row[half], sum + 4 * j + 2 * half, j);
      const int64_t at = row[half].pixel * a.out_channels + column + inside;
      if constexpr (kOutput == ConvOutput::kInt) {
        *reinterpret_cast<int2*>(a.out_int + at) = dots;
      } else {
        const float2 scale = *reinterpret_cast<const float2*>(shared.scale[buffer] + inside);
        const float2 bias = *reinterpret_cast<const float2*>(shared.bias[buffer] + inside);
        *reinterpret_cast<float2*>(a.out_float + at) =
            make_float2(__fadd_rn(__fmul_rn(scale.x, __int2float_rn(dots.x)), bias.x),
                        __fadd_rn(__fmul_rn(scale.y, __int2float_rn(dots.y)), bias.y));
      }
    }
  }
}

// Addends of two successive outputs from `output` on, none beyond those there are.
__device__ __forceinline__ int2 load_addends(const ConvAddArgs& args, int32_t pixel, int output) {
  int2 values = make_int2(0, 0);
  if (args.addend == nullptr || output >= args.addend_channels) return values;
  const int64_t at = pixel * args.addend_channels + output;
  const bool both = output + 1 < args.addend_channels;
  if (args.addend_wide) {
    const int32_t* from = static_cast<const int32_t*>(args.addend) + at;
    values.x = __ldg(from);
    if (both) values.y = __ldg(from + 1);
  } else {
    const int16_t* from = static_cast<const int16_t*>(args.addend) + at;
    if (both && at % 2 == 0) {
      const short2 pair = __ldg(reinterpret_cast<const short2*>(from));
      return make_int2(pair.x, pair.y);
    }
    values.x = __ldg(from);
    if (both) values.y = __ldg(from + 1);
  }
  return values;
}

template <int kColumns>
__device__ __forceinline__ void store_conv_sums(const ConvAddArgs& args, const ConvShared& shared,
                                                int buffer, const int32_t (&sum)[kColumns / 2],
                                                const ConvTileRow (&row)[2], int column, int quad) {
  const ConvArgs& a = args.conv;
  uint32_t bits[2] = {0, 0};
#pragma unroll
  for (int j = kColumns / 8 - 1; j >= 0; --j) {
    const int inside = j * 8 + quad * 2;
    const bool exists = column + j * 8 < a.out_channels;
    const int2 limit = *reinterpret_cast<const int2*>(shared.limit[buffer] + inside);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int2 total = conv_dots(row[half], sum + 4 * j + 2 * half, j);
      if (exists && row[half].pixel >= 0) {
        const int2 addend = load_addends(args, row[half].addend, column + inside);
        total.x += addend.x;
        total.y += addend.y;
        const int64_t at = row[half].pixel * a.out_channels + column + inside;
        if (args.sums != nullptr && args.sums_wide) {
          *reinterpret_cast<int2*>(static_cast<int32_t*>(args.sums) + at) = total;
        } else if (args.sums != nullptr) {
          *reinterpret_cast<short2*>(static_cast<int16_t*>(args.sums) + at) =
              make_short2(static_cast<int16_t>(min(max(total.x, -32768), 32767)),
                          static_cast<int16_t>(min(max(total.y, -32768), 32767)));
        }
      }
      bits[half] = bits[half] << 2 | static_cast<uint32_t>(total.y >= limit.y) << 1 |
                   static_cast<uint32_t>(total.x >= limit.x);
    }
  }
  if (a.out_bits != nullptr)
    store_conv_bits<kColumns>(a, shared.turned[buffer], bits[0], bits[1], column, row[0].pixel,
                              row[1].pixel, quad);
}

// sum[m] holds rows 64 m to 64 m + 63 of the warpgroup's 128, as accumulator fragments.
template <int kColumns, ConvOutput kOutput>
__device__ __forceinline__ void store_conv_tile(const ConvShared& shared, const unsigned char* raw,
                                                const ConvAddArgs& a, const ConvPlan& plan,
                                                const int32_t (&sum)[2][kColumns / 2], int consumer,
                                                int column, int row_buffer, int buffer) {
  const int table_words =
      plan.row_axis.classes * plan.column_axis.classes * (kColumns + kConvTablePadding);
  const auto* table = reinterpret_cast<const int32_t*>(raw + plan.tables_at) + buffer * table_words;
  const int thread = threadIdx.x % 128;
  const int lane = thread % kWarp;
  const int quad = fragment_quad(lane);
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const int first = consumer * 128 + m * 64 + thread / kWarp * 16 + fragment_group(lane);
    const ConvTileRow row[2] = {load_conv_row(shared, table, row_buffer, first, quad),
                                load_conv_row(shared, table, row_buffer, first + 8, quad)};
    if constexpr (kOutput == ConvOutput::kBits) {
      store_conv_signs<kColumns>(a.conv, shared.turned[buffer], sum[m], row, column, quad);
    } else if constexpr (kOutput == ConvOutput::kSums) {
      store_conv_sums<kColumns>(a, shared, buffer, sum[m], row, column, quad);
    } else {
      store_conv_values<kColumns, kOutput>(a.conv, shared, buffer, sum[m], row, column, quad);
    }
  }
}

#endif

}  // namespace bitgnn::cuda
