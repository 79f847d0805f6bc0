// Epilogue of the warpgroup convolution: turns the sums of 128 positions into bits, values or
// residual sums. A lane holds consecutive outputs of its rows; see ConvTable.
#pragma once

#include "conv/cuda/hopper/wgmma_terms.cuh"
#include "conv/cuda/outputs.cuh"

namespace bitgnn::cuda::conv {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The sums of four consecutive outputs, from the lane's output 4 part on, of row 8 half + g.
template <int kColumns>
__device__ __forceinline__ int4 four_sums(const int32_t (&sum)[kColumns / 2], int part, int half) {
  const int32_t* from = sum + part * 8 + half * 2;
  return make_int4(from[0], from[1], from[4], from[5]);
}

// Bits of a lane's outputs of one row, the first in the lowest bit.
template <int kColumns>
__device__ __forceinline__ uint32_t conv_signs(const int32_t (&sum)[kColumns / 2],
                                               const int32_t* terms, int row_sum, int half) {
  uint32_t bits = 0;
#pragma unroll
  for (int part = kColumns / 16 - 1; part >= 0; --part) {
    const int4 term = *reinterpret_cast<const int4*>(terms + part * 4);
    const int4 s = four_sums<kColumns>(sum, part, half);
    bits = push_sign(bits, term.w + row_sum - 2 * s.w);
    bits = push_sign(bits, term.z + row_sum - 2 * s.z);
    bits = push_sign(bits, term.y + row_sum - 2 * s.y);
    bits = push_sign(bits, term.x + row_sum - 2 * s.x);
  }
  return bits;
}

// Writes the words of two rows of pixels; a lane holds 32 or 16 bits of each.
template <int kColumns>
__device__ __forceinline__ void store_conv_bits(const ConvArgs& a, const uint32_t* turned,
                                                uint32_t first, uint32_t second, int column,
                                                int first_pixel, int second_pixel, int quad) {
  const int all = static_cast<int>(a.out_channels / 32);
  if constexpr (kColumns == 128) {
    const int word = column / 32 + quad;
    if (word >= all) return;
    const uint32_t turn = turned[quad];
    int32_t* to = a.out_bits + word;
    if (first_pixel >= 0)
      to[static_cast<int64_t>(first_pixel) * all] = static_cast<int32_t>(first ^ turn);
    if (second_pixel >= 0)
      to[static_cast<int64_t>(second_pixel) * all] = static_cast<int32_t>(second ^ turn);
  } else {
    static_assert(kColumns == 64, "a tile has 64 or 128 outputs");
    // Even lanes get the whole word of the first row, odd lanes that of the second.
    const bool odd = (quad & 1) != 0;
    const uint32_t got = __shfl_xor_sync(kFullWarp, odd ? first : second, 1);
    const uint32_t bits = odd ? (second << 16 | got) : (got << 16 | first);
    const int word = column / 32 + quad / 2;
    const int pixel = odd ? second_pixel : first_pixel;
    if (word < all && pixel >= 0)
      a.out_bits[static_cast<int64_t>(pixel) * all + word] =
          static_cast<int32_t>(bits ^ turned[quad / 2]);
  }
}

__device__ __forceinline__ int4 conv_dots(int4 sum, const int32_t* terms, int row_sum) {
  const int4 term = *reinterpret_cast<const int4*>(terms);
  return make_int4(4 * sum.x - 2 * row_sum + term.x, 4 * sum.y - 2 * row_sum + term.y,
                   4 * sum.z - 2 * row_sum + term.z, 4 * sum.w - 2 * row_sum + term.w);
}

__device__ __forceinline__ float conv_value(int dot, int scale, int bias) {
  return __fadd_rn(__fmul_rn(__int_as_float(scale), __int2float_rn(dot)), __int_as_float(bias));
}

// Stores float or integer values of a lane's outputs of one row; `extra` holds scales, then biases
// one table row later.
template <int kColumns, ConvOutput kOutput>
__device__ __forceinline__ void store_conv_values(const ConvArgs& a,
                                                  const int32_t (&sum)[kColumns / 2],
                                                  const ConvRowInfo& row, const int32_t* terms,
                                                  const int32_t* extra, int output, int half) {
  using Table = ConvTable<kColumns, kOutput>;
  if (row.pixel < 0) return;
  const int64_t at = row.pixel * a.out_channels + output;
#pragma unroll
  for (int index = 0; index < kColumns / 16; ++index) {
    const int part = Table::part(index);
    if (output + part >= a.out_channels) break;
    const int4 dots =
        conv_dots(four_sums<kColumns>(sum, index, half), terms + row.terms + part, row.sum);
    if constexpr (kOutput == ConvOutput::kInt) {
      *reinterpret_cast<int4*>(a.out_int + at + part) = dots;
    } else {
      const int4 scale = *reinterpret_cast<const int4*>(extra + part);
      const int4 bias = *reinterpret_cast<const int4*>(extra + Table::kPitch + part);
      *reinterpret_cast<float4*>(a.out_float + at + part) =
          make_float4(conv_value(dots.x, scale.x, bias.x), conv_value(dots.y, scale.y, bias.y),
                      conv_value(dots.z, scale.z, bias.z), conv_value(dots.w, scale.w, bias.w));
    }
  }
}

// Address of the addends of a lane's outputs of a row, or null.
__device__ __forceinline__ const int4* addends_of(const ConvAddArgs& args, const ConvRowInfo& row,
                                                  int output) {
  if (args.addend == nullptr || row.pixel < 0) return nullptr;
  return reinterpret_cast<const int4*>(static_cast<const int16_t*>(args.addend) +
                                       row.addend * args.addend_channels + output);
}

// Loads eight addends of a lane's chunk; a quad's are 64 bytes. Volatile, because otherwise the
// compiler loads those of all rows at once and runs out of registers.
__device__ __forceinline__ int4 load_addends(const ConvAddArgs& args, const int4* from, int output,
                                             int chunk) {
  int4 v = make_int4(0, 0, 0, 0);
  if (from != nullptr && output + chunk * 32 < static_cast<int>(args.addend_channels))
    asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from + chunk * 4));
  return v;
}

__device__ __forceinline__ int clamp_pair(int low, int high) {
  const auto x = static_cast<uint32_t>(min(max(low, -32768), 32767));
  const auto y = static_cast<uint32_t>(min(max(high, -32768), 32767));
  return static_cast<int>(__byte_perm(x, y, 0x5410));
}

__device__ __forceinline__ int4 add_pairs(int4 dots, int first, int second) {
  return make_int4(dots.x + static_cast<int16_t>(first), dots.y + (first >> 16),
                   dots.z + static_cast<int16_t>(second), dots.w + (second >> 16));
}

// Stores the totals of a lane's outputs of one row and returns their bits, the first in the lowest
// bit; a bit is set where the total exceeds its limit.
template <int kColumns>
__device__ __forceinline__ uint32_t store_conv_sums(const ConvAddArgs& args,
                                                    const int32_t (&sum)[kColumns / 2],
                                                    const ConvRowInfo& row, const int32_t* terms,
                                                    const int32_t* limits, int output, int half) {
  const ConvArgs& a = args.conv;
  auto* to = args.sums != nullptr && row.pixel >= 0
                 ? static_cast<int16_t*>(args.sums) + row.pixel * a.out_channels + output
                 : nullptr;
  const int4* from = addends_of(args, row, output);
  int4 addends[kColumns / 32];
#pragma unroll
  for (int chunk = 0; chunk < kColumns / 32; ++chunk)
    addends[chunk] = load_addends(args, from, output, chunk);
  uint32_t bits = 0;
#pragma unroll
  for (int chunk = kColumns / 32 - 1; chunk >= 0; --chunk) {
    const int first = chunk * 32;
    const int4 v = addends[chunk];
    const int4 low = add_pairs(
        conv_dots(four_sums<kColumns>(sum, chunk * 2, half), terms + row.terms + first, row.sum),
        v.x, v.y);
    const int4 high = add_pairs(conv_dots(four_sums<kColumns>(sum, chunk * 2 + 1, half),
                                          terms + row.terms + first + 4, row.sum),
                                v.z, v.w);
    if (to != nullptr && output + first < static_cast<int>(a.out_channels))
      *reinterpret_cast<int4*>(to + first) =
          make_int4(clamp_pair(low.x, low.y), clamp_pair(low.z, low.w), clamp_pair(high.x, high.y),
                    clamp_pair(high.z, high.w));
    const int4 low_limit = *reinterpret_cast<const int4*>(limits + first);
    const int4 high_limit = *reinterpret_cast<const int4*>(limits + first + 4);
    bits = push_sign(bits, high_limit.w - high.w);
    bits = push_sign(bits, high_limit.z - high.z);
    bits = push_sign(bits, high_limit.y - high.y);
    bits = push_sign(bits, high_limit.x - high.x);
    bits = push_sign(bits, low_limit.w - low.w);
    bits = push_sign(bits, low_limit.z - low.z);
    bits = push_sign(bits, low_limit.y - low.y);
    bits = push_sign(bits, low_limit.x - low.x);
    // Keeps the compiler from loading the terms of all chunks at once, which would exceed the
    // registers.
    asm volatile("" ::: "memory");
  }
  return bits;
}

// Transposes the bytes of a quad: byte i of lane q's result is byte q of lane i's input.
__device__ __forceinline__ uint32_t gather_bytes(uint32_t bytes, int quad) {
  uint32_t word = 0;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const uint32_t got = step == 0 ? bytes : __shfl_xor_sync(kFullWarp, bytes, step);
    word |= (got >> (8 * quad) & 0xff) << (8 * (quad ^ step));
  }
  return word;
}

// Writes the words of two rows of totals; a lane holds one byte of every word.
template <int kColumns>
__device__ __forceinline__ void store_total_bits(const ConvArgs& a, const uint32_t* turned,
                                                 uint32_t first, uint32_t second, int column,
                                                 int first_pixel, int second_pixel, int quad) {
  if constexpr (kColumns == 128) {
    const uint32_t first_word = gather_bytes(first, quad);
    const uint32_t second_word = gather_bytes(second, quad);
    store_conv_bits<kColumns>(a, turned, first_word, second_word, column, first_pixel, second_pixel,
                              quad);
  } else {
    const uint32_t bits = gather_bytes(first | second << 16, quad);
    const int all = static_cast<int>(a.out_channels / 32);
    const int word = column / 32 + quad % 2;
    const int pixel = quad < 2 ? first_pixel : second_pixel;
    if (word < all && pixel >= 0)
      a.out_bits[static_cast<int64_t>(pixel) * all + word] =
          static_cast<int32_t>(bits ^ turned[quad % 2]);
  }
}

// sum[m] holds rows 64 m to 64 m + 63 of the warpgroup's 128, in accumulator fragment layout.
template <int kColumns, ConvOutput kOutput>
__device__ __forceinline__ void store_conv_tile(const ConvShared& shared, const unsigned char* raw,
                                                const ConvAddArgs& args, const ConvPlan& plan,
                                                const int32_t (&sum)[2][kColumns / 2], int consumer,
                                                int column, int row_buffer, int buffer) {
  using Table = ConvTable<kColumns, kOutput>;
  const ConvArgs& a = args.conv;
  const int thread = threadIdx.x % 128;
  const int lane = thread % kWarp;
  const int quad = fragment_quad(lane);
  const int output = column + quad * Table::kChunk;
  const auto* terms = reinterpret_cast<const int32_t*>(raw + plan.tables_at) +
                      buffer * (plan.classes + 2) * Table::kPitch +
                      Table::place(quad * Table::kChunk);
  const int32_t* extra = terms + plan.classes * Table::kPitch;
  const ConvRowInfo* rows =
      shared.rows[row_buffer] + consumer * 128 + thread / kWarp * 16 + fragment_group(lane);
  if constexpr (kOutput == ConvOutput::kSums) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const ConvRowInfo first = rows[m * 64];
      const uint32_t first_bits =
          store_conv_sums<kColumns>(args, sum[m], first, terms, extra, output, 0);
      const ConvRowInfo second = rows[m * 64 + 8];
      const uint32_t second_bits =
          store_conv_sums<kColumns>(args, sum[m], second, terms, extra, output, 1);
      if (a.out_bits != nullptr)
        store_total_bits<kColumns>(a, shared.turned[buffer], first_bits, second_bits, column,
                                   first.pixel, second.pixel, quad);
    }
  } else {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const ConvRowInfo first = rows[m * 64], second = rows[m * 64 + 8];
      if constexpr (kOutput == ConvOutput::kBits) {
        const uint32_t first_bits = conv_signs<kColumns>(sum[m], terms + first.terms, first.sum, 0);
        const uint32_t second_bits =
            conv_signs<kColumns>(sum[m], terms + second.terms, second.sum, 1);
        store_conv_bits<kColumns>(a, shared.turned[buffer], first_bits, second_bits, column,
                                  first.pixel, second.pixel, quad);
      } else {
        store_conv_values<kColumns, kOutput>(a, sum[m], first, terms, extra, output, 0);
        store_conv_values<kColumns, kOutput>(a, sum[m], second, terms, extra, output, 1);
      }
    }
  }
}

#endif

}  // namespace bitgnn::cuda::conv
