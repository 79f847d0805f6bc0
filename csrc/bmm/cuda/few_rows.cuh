// Products of few packed rows: each weight is used once, loaded directly from global memory into
// tensor-core fragments. The warps of a block split the features of 16 or 32 outputs and reduce
// their sums in shared memory. Bound by reading the weights.
#pragma once

#include <algorithm>

#include "bmm/cuda/epilogue_terms.cuh"
#include "bmm/cuda/output.cuh"
#include "bmm/cuda/routes.h"
#include "core/cuda/dependent_launch.cuh"

namespace bitgnn::cuda::bmm {

constexpr int kFewMostWarps = 16;
constexpr int kFewChunkWords = 16;  // words of a row per chunk: two MMA steps
constexpr int kFewChunks = 4;       // in flight per warp

// Each row is split into chunks of 512 features, divided among the warps of a block.
struct FewPlan {
  int words;
  int chunks;
  int warp_chunks;
};

// Loads four words of a row, zeros where there are none. kVector: rows are whole groups of four.
template <bool kVector>
__device__ __forceinline__ uint4 load_few(const int32_t* row, int word, int words) {
  if constexpr (kVector) {
    return row != nullptr && word < words ? *reinterpret_cast<const uint4*>(row + word)
                                          : make_uint4(0, 0, 0, 0);
  } else {
    uint32_t value[4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      value[k] = row != nullptr && word + k < words ? static_cast<uint32_t>(row[word + k]) : 0u;
    return make_uint4(value[0], value[1], value[2], value[3]);
  }
}

// Adds the agreements popc(w & x) + popc(~w & ~x); words 2 k and 2 k + 1 of the four form a step.
__device__ __forceinline__ void add_agreements(int32_t (&sum)[4], const uint4& low,
                                               const uint4& high, const uint4& x) {
  const uint32_t first[4] = {low.x, high.x, low.y, high.y};
  const uint32_t second[4] = {low.z, high.z, low.w, high.w};
  const uint32_t first_x[2] = {x.x, x.y}, second_x[2] = {x.z, x.w};
  mma_and_popc(sum, first, first_x);
  mma_and_popc(sum, second, second_x);
  const uint32_t not_first[4] = {~low.x, ~high.x, ~low.y, ~high.y};
  const uint32_t not_second[4] = {~low.z, ~high.z, ~low.w, ~high.w};
  const uint32_t not_first_x[2] = {~x.x, ~x.y}, not_second_x[2] = {~x.z, ~x.w};
  mma_and_popc(sum, not_first, not_first_x);
  mma_and_popc(sum, not_second, not_second_x);
}

// Epilogue terms of one output and one row.
struct FewTerms {
  float row_scale = 1.0f, scale = 1.0f, bias = -0.0f, threshold = 0.0f;
  bool flip = false;

  __device__ FewTerms(const BmmArgs& a, int64_t row, int64_t output) {
    if (row >= a.rows || output >= a.out_features) return;
    if (a.row_scale != nullptr) row_scale = a.row_scale[row];
    if (a.out_scale != nullptr) scale = a.out_scale[output];
    if (a.bias != nullptr) bias = a.bias[output];
    if (a.threshold != nullptr) threshold = a.threshold[output];
    if (a.flip != nullptr) flip = a.flip[output];
  }
};

// A block takes kRowTiles tiles of eight rows and kOutputTiles tiles of 16 outputs.
template <int kRowTiles, int kOutputTiles, bool kVector>
__global__ void __launch_bounds__(kFewMostWarps* kWarp)
    bmm_few_kernel(const BmmArgs a, const FewPlan plan) {
  constexpr int kRows = kRowTiles * kMmaColumns, kOutputs = kOutputTiles * kMmaRows;
  constexpr int kPitch = kOutputs + 4;  // avoids bank conflicts
  __shared__ int32_t sums[kFewMostWarps][kRows][kPitch];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int threads = static_cast<int>(blockDim.x);
  const int quad = fragment_quad(lane), group = fragment_group(lane);
  const int64_t first_output = static_cast<int64_t>(blockIdx.x) * kOutputs;
  const int32_t* w[kOutputTiles][2];
  const int32_t* x[kRowTiles];
#pragma unroll
  for (int i = 0; i < kOutputTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t output = first_output + i * kMmaRows + half * 8 + group;
      w[i][half] = output < a.out_features ? a.w + output * plan.words : nullptr;
    }
  }
#pragma unroll
  for (int j = 0; j < kRowTiles; ++j) {
    const int row = j * kMmaColumns + group;
    x[j] = row < a.rows ? a.x + static_cast<int64_t>(row) * plan.words : nullptr;
  }
  const int last_chunk = min((warp + 1) * plan.warp_chunks, plan.chunks);
  int32_t sum[kOutputTiles][kRowTiles][4] = {};
  let_next_start();
  wait_for_previous();
  FewTerms terms(a, static_cast<int>(threadIdx.x) / kOutputs,
                 first_output + static_cast<int>(threadIdx.x) % kOutputs);
#pragma unroll 1
  for (int chunk = warp * plan.warp_chunks; chunk < last_chunk; chunk += kFewChunks) {
    uint4 weights[kFewChunks][kOutputTiles][2], rows[kFewChunks][kRowTiles];
#pragma unroll
    for (int c = 0; c < kFewChunks; ++c) {
      const int words = chunk + c < last_chunk ? plan.words : 0;
      const int word = (chunk + c) * kFewChunkWords + quad * 4;
#pragma unroll
      for (int i = 0; i < kOutputTiles; ++i) {
        weights[c][i][0] = load_few<kVector>(w[i][0], word, words);
        weights[c][i][1] = load_few<kVector>(w[i][1], word, words);
      }
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) rows[c][j] = load_few<kVector>(x[j], word, words);
    }
#pragma unroll
    for (int c = 0; c < kFewChunks; ++c) {
      if (chunk + c >= last_chunk) break;
#pragma unroll
      for (int i = 0; i < kOutputTiles; ++i) {
#pragma unroll
        for (int j = 0; j < kRowTiles; ++j)
          add_agreements(sum[i][j], weights[c][i][0], weights[c][i][1], rows[c][j]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kOutputTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kRowTiles; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k)
        sums[warp][j * kMmaColumns + quad * 2 + k % 2][i * kMmaRows + k / 2 * 8 + group] =
            sum[i][j][k];
    }
  }
  __syncthreads();
  const int warps = threads / kWarp;
  // Padding words agree everywhere; dot = 2 * agreements - features.
  const auto absent = static_cast<int32_t>(2 * plan.chunks * kFewChunkWords * kWordBits - a.size);
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < kRows * kOutputs; item += threads) {
    const int row = item / kOutputs, column = item % kOutputs;
    const int64_t output = first_output + column;
    if (item >= threads) terms = FewTerms(a, row, output);
    int32_t agreements = 0;
    for (int k = 0; k < warps; ++k) agreements += sums[k][row][column];
    const int32_t dot = 2 * agreements - absent;
    const float value = slab_value(terms.row_scale, terms.scale, terms.bias, dot);
    const bool exists = row < a.rows && output < a.out_features;
    if (a.out_bits == nullptr) {
      if (!exists) continue;
      if (a.out_int != nullptr) {
        a.out_int[row * a.out_features + output] = dot;
      } else {
        a.out_float[row * a.out_features + output] = value;
      }
      continue;
    }
    const uint32_t bits =
        __ballot_sync(kFullWarp, exists && ((value >= terms.threshold) != terms.flip));
    if (row >= a.rows || lane % kOutputs != 0) continue;
    if constexpr (kOutputs == 32) {
      a.out_bits[row * output_words(a) + blockIdx.x] = static_cast<int32_t>(bits);
    } else {
      reinterpret_cast<uint16_t*>(a.out_bits)[row * output_words(a) * 2 + blockIdx.x] =
          static_cast<uint16_t>(bits >> lane);
    }
  }
}

template <int kRowTiles, int kOutputTiles>
cudaError_t launch_bmm_few(const BmmArgs& a, bool vectors, const Context& context) {
  constexpr int kLeastWarps = 4;  // for the epilogue
  FewPlan plan{};
  plan.words = static_cast<int>(words_for(a.size));
  plan.chunks = static_cast<int>(ceil_div(plan.words, kFewChunkWords));
  plan.warp_chunks = static_cast<int>(ceil_div(plan.chunks, kFewMostWarps));
  const int64_t warps =
      std::max<int64_t>(kLeastWarps, ceil_div(plan.chunks, std::max(1, plan.warp_chunks)));
  // Half-words are written separately, padding halves included.
  const int64_t blocks = kOutputTiles == 1 && a.out_bits != nullptr
                             ? 2 * words_for(a.out_features)
                             : ceil_div(a.out_features, kOutputTiles * kMmaRows);
  const auto kernel = vectors ? bmm_few_kernel<kRowTiles, kOutputTiles, true>
                              : bmm_few_kernel<kRowTiles, kOutputTiles, false>;
  return launch_dependent(kernel, dim3(grid_size(blocks)), static_cast<int>(warps) * kWarp, 0,
                          context, a, plan);
}

}  // namespace bitgnn::cuda::bmm
