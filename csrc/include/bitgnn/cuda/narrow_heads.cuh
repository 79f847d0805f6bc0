// Softmax, its logarithm or the class of a row whose scores lie in the lanes of a group.
#pragma once

#include <climits>

#include "bitgnn/cuda/common.cuh"
#include "bitgnn/narrow_call.h"

namespace bitgnn::cuda {

struct HeadTarget {
  Head head;
  float* scores;     // [rows, features]
  int64_t* classes;  // [rows]
  int64_t features;
};

// Whether score v of feature f is that of the class rather than w of g, as torch.argmax has it.
__device__ __forceinline__ bool precedes(float v, int f, float w, int g) {
  const bool v_is_nan = isnan(v);
  if (v_is_nan != isnan(w)) return v_is_nan;
  return v == w || v_is_nan ? f < g : v > w;
}

// Lanes [0, kGroup) of an aligned group, those of `mask`, hold the scores of a row: features
// [first, first + kKept) below `features`. Where several lanes hold the same, one of them `counts`.
template <int kKept, int kGroup>
__device__ __forceinline__ void finish_scores(const HeadTarget& t, int64_t row, unsigned mask,
                                              bool leads, bool counts, int first,
                                              const float (&score)[kKept]) {
  const int features = static_cast<int>(t.features);
  float largest = -INFINITY;
  if (t.head == Head::kClasses) {
    int place = INT_MAX;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (first + i < features && precedes(score[i], first + i, largest, place)) {
        largest = score[i];
        place = first + i;
      }
    }
#pragma unroll
    for (int step = kGroup / 2; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(mask, largest, step);
      const int other_place = __shfl_xor_sync(mask, place, step);
      if (precedes(other, other_place, largest, place)) {
        largest = other;
        place = other_place;
      }
    }
    if (leads) t.classes[row] = place;
    return;
  }
#pragma unroll
  for (int i = 0; i < kKept; ++i)
    if (first + i < features) largest = fmaxf(largest, score[i]);
#pragma unroll
  for (int step = kGroup / 2; step > 0; step /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(mask, largest, step));
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kKept; ++i)
    if (counts && first + i < features) sum = __fadd_rn(sum, expf(score[i] - largest));
#pragma unroll
  for (int step = kGroup / 2; step > 0; step /= 2)
    sum = __fadd_rn(sum, __shfl_xor_sync(mask, sum, step));
  const float logarithm = logf(sum);
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const float below = score[i] - largest;
    if (counts && first + i < features)
      t.scores[row * t.features + first + i] =
          t.head == Head::kSoftmax ? expf(below) / sum : below - logarithm;
  }
}

}  // namespace bitgnn::cuda
