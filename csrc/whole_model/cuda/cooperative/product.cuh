// Products of packed rows in the cooperative kernel: 1-bit tensor cores, operands in shared memory.
#pragma once

#include "core/cuda/mma_b1.cuh"
#include "whole_model/cuda/cooperative/rows.cuh"

namespace bitgnn::cuda::whole_model {

constexpr int kGroupFragments = 2;  // of eight columns, per warp at a time
constexpr int kGroupColumns = kGroupFragments * kMmaColumns;

// The sign of a product with row and column scales, rounded as everywhere else.
__device__ __forceinline__ bool scaled_sign(const StagePlan& plan, const uint32_t* image,
                                            int column, float row_scale, int product) {
  if (column >= plan.stage.out) return false;
  const auto constant = [&](int offset) {
    return reinterpret_cast<const float*>(image + offset)[column];
  };
  const float scale = plan.stage.product_scale == kNoOffset
                          ? row_scale
                          : __fmul_rn(row_scale, constant(plan.stage.product_scale));
  return __fmul_rn(scale, __int2float_rn(product)) >= constant(plan.stage.product_threshold);
}

// Multiplies the packed rows `bits` by the stage's weights and writes `rows` in the format passed
// to the next stage: signs, or halved products as the narrowest integers. A warp takes 16 rows by
// 16 columns at a time. The row of valid bits serves as an operand that counts the rows' set bits.
template <bool kSigns>
__device__ __forceinline__ void multiply_rows(const StagePlan& plan, const uint32_t* image,
                                              const uint32_t* bits, const float* scales,
                                              uint32_t* rows, int num_rows, int warp, int lane) {
  const int pitch = plan.pitch, end = plan.steps * kMmaWords, groups = plan.groups;
  const int row_bytes = plan.pieces * kPieceWords * 4;
  const int group = fragment_group(lane), quad = fragment_quad(lane);
  const uint32_t* weights = image + plan.stage.weights + quad;
  const uint32_t* valid = weights + groups * kGroupColumns * pitch;
  const int jobs = (num_rows + kMmaRows - 1) / kMmaRows * groups;
#pragma unroll 1
  for (int job = warp; job < jobs; job += stage_warps()) {
    const int tile = plan.by_groups.quotient(job), first = (job - tile * groups) * kGroupColumns;
    const uint32_t* left = bits + tile * kMmaRows * pitch;
    const uint32_t* right = weights + (first + group) * pitch;
    int32_t both[kGroupFragments][4] = {}, count[4] = {};
#pragma unroll 2
    for (int word = 0; word < end; word += kMmaWords) {
      uint32_t x[4];
      load_row_fragment(x, left + word, pitch, lane);
      const uint32_t mask[2] = {valid[word], valid[word + 4]};
#pragma unroll
      for (int j = 0; j < kGroupFragments; ++j) {
        const uint32_t* column = right + j * kMmaColumns * pitch + word;
        const uint32_t w[2] = {column[0], column[4]};
        mma_and_popc(both[j], x, w);
      }
      mma_and_popc(count, x, mask);
    }
    const int row = tile * kMmaRows + group;
    const int2* terms = reinterpret_cast<const int2*>(image + plan.stage.terms + first) + quad;
    char* to = reinterpret_cast<char*>(rows) + row * row_bytes;
    uint32_t signs = 0;  // 16 of row `row`, 16 of row + 8
#pragma unroll
    for (int j = 0; j < kGroupFragments; ++j) {
      const int2 term = terms[j * kMmaColumns / 2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (kSigns) {
          const int at = half * kGroupColumns + j * kMmaColumns;
          const int value[2] = {2 * both[j][half * 2] - count[half * 2],
                                2 * both[j][half * 2 + 1] - count[half * 2]};
          if (plan.stage.scaled) {
            const int column = first + j * kMmaColumns + quad * 2;
            const float scale = scales[min(row + half * 8, num_rows - 1)];
#pragma unroll
            for (int e = 0; e < 2; ++e)
              if (scaled_sign(plan, image, column + e, scale,
                              (e == 0 ? term.x : term.y) + 2 * value[e]))
                signs |= (1u + e) << at;
          } else {
            if (value[0] >= term.x) signs |= 1u << at;
            if (value[1] >= term.y) signs |= 2u << at;
          }
        } else {
          // Columns are written in pairs; the second of the last pair may be padding.
          const int column = first + j * kMmaColumns + quad * 2;
          const int low = (term.x - 2 * count[half * 2] + 4 * both[j][half * 2]) >> 1;
          const int high = (term.y - 2 * count[half * 2] + 4 * both[j][half * 2 + 1]) >> 1;
          char* own = to + half * 8 * row_bytes;
          if (row + half * 8 < num_rows && column < plan.stage.out) {
            if (plan.byte_integers)
              *reinterpret_cast<uint16_t*>(own + column) =
                  static_cast<uint16_t>((low & 0xff) | high << 8);
            else
              *reinterpret_cast<uint32_t*>(own + column * 2) =
                  static_cast<uint32_t>((low & 0xffff) | high << 16);
          }
        }
      }
    }
    if constexpr (kSigns) {
      signs <<= quad * 2;
      signs |= __shfl_xor_sync(kFullWarp, signs, 1);
      signs |= __shfl_xor_sync(kFullWarp, signs, 2);
      const auto inversion =
          reinterpret_cast<const uint16_t*>(image + plan.stage.inversions)[first / kGroupColumns];
      const int own_row = row + quad * 8;
      if (quad < 2 && own_row < num_rows)
        reinterpret_cast<uint16_t*>(to + quad * 8 * row_bytes)[first / kGroupColumns] =
            static_cast<uint16_t>((signs >> quad * kGroupColumns) ^ inversion);
    }
  }
}

// Halved products of few words and few columns, one byte and one thread each: tensor cores would
// use only a corner of their tiles.
__device__ __forceinline__ void multiply_few_columns(const StagePlan& plan, const uint32_t* image,
                                                     const uint32_t* bits, uint32_t* rows,
                                                     int num_rows) {
  const int out = plan.stage.out, words = plan.words, pitch = plan.pitch;
  const uint32_t* weights = image + plan.stage.weights;
  const uint32_t* valid = weights + plan.groups * kGroupColumns * pitch;
  const auto* terms = reinterpret_cast<const int*>(image + plan.stage.terms);
#pragma unroll 1
  for (int i = threadIdx.x; i < num_rows * out; i += stage_threads()) {
    const int row = plan.by_out.quotient(i), column = i - row * out;
    const uint32_t* x = bits + row * pitch;
    const uint32_t* w = weights + column * pitch;
    int both = 0, count = 0;
#pragma unroll 2
    for (int word = 0; word < words; ++word) {
      const uint32_t own = x[word] & valid[word];
      count += __popc(own);
      both += __popc(own & w[word]);
    }
    const int half = (terms[column] - 2 * count + 4 * both) >> 1;
    reinterpret_cast<int8_t*>(rows + row * plan.pieces * kPieceWords)[column] =
        static_cast<int8_t>(half);
  }
}

}  // namespace bitgnn::cuda::whole_model
