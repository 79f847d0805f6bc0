// Ternary rows times +-1 weights without tensor cores: a warp computes 32 outputs of a row, of any
// length, even too long for the tile product's shared memory. Bound by popcounts.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "ternary/cuda/values.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kTernarySimtWarps = 8;

__global__ void __launch_bounds__(kTernarySimtWarps* kWarp)
    ternary_simt_kernel(const TernaryBmmArgs a, int64_t words) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row_words = ceil_div(a.out_features, kWordBits);
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kTernarySimtWarps + threadIdx.x / kWarp;
  let_next_start();
  wait_for_previous();
  const int64_t row = item / row_words, first_output = item % row_words * kWordBits;
  if (row >= a.rows) return;
  const int32_t* pos = a.x + row * 2 * words;
  const int32_t* neg = pos + words;
  int32_t own = 0;
  for (int i = 0; i < kWarp && first_output + i < a.out_features; ++i) {
    const int32_t* w = a.w + (first_output + i) * words;
    int32_t sum = 0;
    for (int64_t k = lane; k < words; k += kWarp)
      sum += __popc(w[k] & pos[k]) + __popc(~w[k] & neg[k]);
    sum = __reduce_add_sync(kFullWarp, sum);
    if (lane == i) own = sum;
  }
  const int64_t output = first_output + lane;
  const bool exists = output < a.out_features;
  LoadedTerms loaded;
  if (exists) loaded.load(a, output);
  const TernaryTerms terms = loaded.terms();
  const int32_t dot = 2 * own - a.counts[row];
  if (a.out_bits == nullptr) {
    if (exists) store_value(a, row * a.out_features + output, terms, dot);
    return;
  }
  const float threshold = exists && a.threshold != nullptr ? a.threshold[output] : 0.0f;
  const bool flip = exists && a.flip != nullptr && a.flip[output];
  const uint32_t bits = __ballot_sync(kFullWarp, exists && (terms.value(dot) >= threshold) != flip);
  if (lane == 0) a.out_bits[item] = static_cast<int32_t>(bits);
}

}  // namespace bitgnn::cuda::ternary
