// Product of packed rows with weights of three 8-bit digits: exact integer sums on s8 tensor cores.
//
// A weight is (65536 d0 + 256 d1 + d2) * step, with one step per output. Eight shifts of a packed
// word give eight registers of four +1/-1 bytes each, which feed the tensor cores directly. The
// digits are stored in the feature order that results, [3, outputs, words, 8, 4], where byte j of
// shift t is feature t + 8 j of the word. Digit sums are integers, so their order does not matter.
// The digits stay in shared memory in fragment order, and each warp streams its own slabs of rows.
// Bound by the tensor cores, or by writing if there are few outputs.
#pragma once

#include <algorithm>

#include "bmm/arguments.h"
#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/mma_b1.cuh"

namespace bitgnn::cuda::bmm {

constexpr int kDigits = 3;
constexpr int kDigitBytes = 32;  // per word, output and digit
constexpr int kQuadWords = 4;    // words per fragment, one per lane of a quad
constexpr int kShiftPairs = 4;   // fragments per word
constexpr int kLinearThreads = 256;

// d += a * b of signed bytes: 16 rows by 8 outputs over 32 features.
__device__ __forceinline__ void mma_bytes(int32_t (&d)[4], const uint32_t (&a)[4], const uint2& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}

// Expands bits t, t + 8, t + 16 and t + 24 to bytes of +1 or -1.
__device__ __forceinline__ uint32_t sign_bytes(uint32_t word, int t) {
  return ((word >> t) & 0x01010101u) * 0xffffff02u + 0xffffffffu;
}

// Division of the outputs: `tiles` tiles of eight per block, with their digits in shared memory if
// `shared`.
struct LinearPlan {
  int words;
  int quads;  // groups of kQuadWords words
  int tiles;
  bool shared;
};

// Loads the digits of output `o` for a word and a pair of shifts; 0 where there are none.
__device__ __forceinline__ uint2 load_digits(const BitsLinearArgs& a, int words, int digit,
                                             int64_t o, int word, int pair) {
  if (o >= a.out_features || word >= words) return make_uint2(0, 0);
  const int64_t place = (digit * a.out_features + o) * words + word;
  return __ldg(reinterpret_cast<const uint2*>(a.digits + place * kDigitBytes) + pair);
}

// Offset of a fragment's lane 0 in word pairs.
__device__ __forceinline__ int fragment_place(const LinearPlan& plan, int tile, int digit, int quad,
                                              int pair) {
  return (((tile * kDigits + digit) * plan.quads + quad) * kShiftPairs + pair) * kWarp;
}

// A warp takes kSlabs * 16 rows, and kPassTiles tiles of eight outputs each time it reads their
// words.
template <int kSlabs, int kPassTiles, int kBlocks>
__global__ void __launch_bounds__(kLinearThreads, kBlocks)
    bits_linear_kernel(const __grid_constant__ BitsLinearArgs a,
                       const __grid_constant__ LinearPlan plan) {
  extern __shared__ __align__(16) uint2 fragments[];
  constexpr int kRows = kSlabs * kMmaRows;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int group = fragment_group(lane), quad_lane = fragment_quad(lane);
  const int64_t first_output = static_cast<int64_t>(blockIdx.y) * plan.tiles * kMmaColumns;
  let_next_start();
  wait_for_previous();
  if (plan.shared) {
    const int places = plan.tiles * kDigits * plan.quads * kShiftPairs;
    for (int i = warp; i < places; i += kLinearThreads / kWarp) {
      const int pair = i % kShiftPairs, quad = i / kShiftPairs % plan.quads;
      const int digit = i / (kShiftPairs * plan.quads) % kDigits;
      const int tile = i / (kShiftPairs * plan.quads * kDigits);
      fragments[i * kWarp + lane] =
          load_digits(a, plan.words, digit, first_output + tile * kMmaColumns + group,
                      quad * kQuadWords + quad_lane, pair);
    }
    __syncthreads();
  }
  const int64_t slabs = (a.rows + kRows - 1) / kRows;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * (kLinearThreads / kWarp);
  for (int64_t slab = static_cast<int64_t>(blockIdx.x) * (kLinearThreads / kWarp) + warp;
       slab < slabs; slab += stride) {
    const int64_t first_row = slab * kRows + group;
    for (int tile = 0; tile < plan.tiles; tile += kPassTiles) {
      if (first_output + tile * kMmaColumns >= a.out_features) break;
      int32_t sum[kPassTiles][kDigits][kSlabs][4] = {};
      for (int quad = 0; quad < plan.quads; ++quad) {
        const int word = quad * kQuadWords + quad_lane;
        uint32_t x[kSlabs * 2];
#pragma unroll
        for (int r = 0; r < kSlabs * 2; ++r) {
          const int64_t row = first_row + r * 8;
          x[r] = row < a.rows && word < plan.words
                     ? static_cast<uint32_t>(__ldg(a.x + row * plan.words + word))
                     : 0;
        }
#pragma unroll
        for (int pair = 0; pair < kShiftPairs; ++pair) {
          uint32_t rows[kSlabs][4];
#pragma unroll
          for (int s = 0; s < kSlabs; ++s) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              rows[s][half] = sign_bytes(x[s * 2 + half], 2 * pair);
              rows[s][2 + half] = sign_bytes(x[s * 2 + half], 2 * pair + 1);
            }
          }
#pragma unroll
          for (int t = 0; t < kPassTiles; ++t) {
#pragma unroll
            for (int digit = 0; digit < kDigits; ++digit) {
              const uint2 w =
                  plan.shared
                      ? fragments[fragment_place(plan, tile + t, digit, quad, pair) + lane]
                      : load_digits(a, plan.words, digit,
                                    first_output + (tile + t) * kMmaColumns + group, word, pair);
#pragma unroll
              for (int s = 0; s < kSlabs; ++s) mma_bytes(sum[t][digit][s], rows[s], w);
            }
          }
        }
      }
#pragma unroll
      for (int t = 0; t < kPassTiles; ++t) {
        const int64_t output = first_output + (tile + t) * kMmaColumns + quad_lane * 2;
        if (output >= a.out_features) continue;
        const bool both = output + 1 < a.out_features;
        const float steps[2] = {a.step[output], both ? a.step[output + 1] : 0.0f};
        const float biases[2] = {a.bias != nullptr ? a.bias[output] : -0.0f,
                                 a.bias != nullptr && both ? a.bias[output + 1] : -0.0f};
#pragma unroll
        for (int s = 0; s < kSlabs; ++s) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int64_t row = first_row + s * kMmaRows + half * 8;
            if (row >= a.rows) continue;
            const float scale = a.x_scale != nullptr ? a.x_scale[row] : 1.0f;
            const int64_t place = row * a.out_features + output;
            float values[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              const int i = half * 2 + e;
              const float high = __fmul_rn(__int2float_rn(sum[t][0][s][i]), 65536.0f);
              const float low = __int2float_rn(sum[t][1][s][i] * 256 + sum[t][2][s][i]);
              values[e] =
                  __fadd_rn(__fmul_rn(__fmul_rn(scale, steps[e]), __fadd_rn(high, low)), biases[e]);
              if (a.addend != nullptr && (e == 0 || both))
                values[e] = __fadd_rn(values[e], __ldg(a.addend + place + e));
            }
            if (both && a.out_features % 2 == 0) {
              *reinterpret_cast<float2*>(a.out + place) = make_float2(values[0], values[1]);
            } else {
              a.out[place] = values[0];
              if (both) a.out[place + 1] = values[1];
            }
          }
        }
      }
    }
  }
}

template <int kSlabs, int kPassTiles, int kBlocks>
cudaError_t launch_bits_linear(const BitsLinearArgs& a, const Context& context) {
  LinearPlan plan{};
  plan.words = static_cast<int>(words_for(a.size));
  plan.quads = static_cast<int>(ceil_div(plan.words, kQuadWords));
  const int64_t tiles = ceil_div(ceil_div(a.out_features, kMmaColumns), kPassTiles) * kPassTiles;
  const int64_t tile_bytes =
      std::max<int64_t>(1, int64_t{kDigits} * plan.quads * kShiftPairs * kWarp * sizeof(uint2));
  const int64_t fitting = context.device.shared_bytes / tile_bytes;
  plan.shared = fitting >= kPassTiles;
  plan.tiles =
      static_cast<int>(plan.shared ? std::min(tiles, fitting / kPassTiles * kPassTiles) : tiles);
  const size_t bytes = plan.shared ? static_cast<size_t>(plan.tiles * tile_bytes) : 0;
  const auto kernel = bits_linear_kernel<kSlabs, kPassTiles, kBlocks>;
  cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            context.device.shared_bytes);
  if (status != cudaSuccess) return status;
  int resident = 0;
  status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kLinearThreads, bytes);
  if (status != cudaSuccess) return status;
  if (resident == 0) return cudaErrorInvalidConfiguration;
  const int64_t slabs = ceil_div(a.rows, kSlabs * kMmaRows);
  const int64_t blocks =
      std::min<int64_t>(ceil_div(slabs, kLinearThreads / kWarp),
                        static_cast<int64_t>(resident) * context.device.sm_count);
  const dim3 grid(grid_size(blocks), grid_size(ceil_div(tiles, plan.tiles)));
  return launch_dependent(kernel, grid, kLinearThreads, bytes, context, a, plan);
}

}  // namespace bitgnn::cuda::bmm
