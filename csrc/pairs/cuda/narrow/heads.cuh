// Softmax, log-softmax or class of a row whose scores are spread over the lanes of a group.
#pragma once

#include <climits>

#include "core/cuda/common.cuh"
#include "pairs/arguments.h"

namespace bitgnn::cuda::pairs {

struct HeadTarget {
  Head head;
  float* scores;     // [rows, features]
  int64_t* classes;  // [rows]
  int64_t features;
};

// Maps a score to an integer ordered like torch.argmax: zeros are equal, NaN is above all.
__device__ __forceinline__ int order_of(float score) {
  const int bits = __float_as_int(__fadd_rn(score, 0.0f));
  return isnan(score) ? INT_MAX : bits < 0 ? bits ^ INT_MAX : bits;
}
__device__ __forceinline__ float score_of(int order) {
  return __int_as_float(order < 0 ? order ^ INT_MAX : order);
}

// Folds the values of a group of lanes, those of `mask`; lanes that differ only in `kShared` hold
// the same values.
template <int kGroup, int kShared, class Value, class Fold>
__device__ __forceinline__ Value fold_group(unsigned mask, Value value, const Fold& fold) {
#pragma unroll
  for (int step = kGroup / 2; step > 0; step /= 2)
    if ((step & kShared) == 0) value = fold(value, __shfl_xor_sync(mask, value, step));
  return value;
}

// The largest value or, with kLeast, the smallest.
template <int kGroup, int kShared, bool kLeast>
__device__ __forceinline__ int group_bound(unsigned mask, int value) {
  if constexpr (kGroup == kWarp) {
    return kLeast ? __reduce_min_sync(mask, value) : __reduce_max_sync(mask, value);
  } else {
    return fold_group<kGroup, kShared>(mask, value,
                                       [](int a, int b) { return kLeast ? min(a, b) : max(a, b); });
  }
}

// Sum of fewer than 64 exponentials, none above 1, in units that add up exactly: it is the same
// however lanes share a row.
struct ExponentialSum {
  static constexpr uint32_t kNaN = 1u << 31;
  static constexpr float kUnits = 1 << 25;  // of 1

  uint32_t units = 0;

  __device__ __forceinline__ void add(float exponential) {
    units =
        join(units, isnan(exponential) ? kNaN : __float2uint_rn(__fmul_rn(exponential, kUnits)));
  }
  __device__ __forceinline__ static uint32_t join(uint32_t a, uint32_t b) {
    return ((a | b) & kNaN) != 0 ? kNaN : a + b;
  }
  __device__ __forceinline__ float value() const {
    return units == kNaN ? __int_as_float(0x7fc00000)
                         : __fmul_rn(__uint2float_rn(units), 1.0f / kUnits);
  }
};

// Applies the head to a row whose scores are in lanes [0, kGroup) of an aligned group, those of
// `mask`: features [first, first + kKept) below `features`, the same in lanes that differ only in
// `kShared`, one of which `counts`. Exponentials are accurate to seven digits.
template <int kKept, int kGroup, int kShared>
__device__ __forceinline__ void finish_scores(const HeadTarget& t, int64_t row, unsigned mask,
                                              bool leads, bool counts, int first,
                                              const float (&score)[kKept]) {
  const int features = static_cast<int>(t.features);
  int order[kKept];
  int most = INT_MIN;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    order[i] = first + i < features ? order_of(score[i]) : INT_MIN;
    most = max(most, order[i]);
  }
  most = group_bound<kGroup, kShared, false>(mask, most);
  if (t.head == Head::kClasses) {
    int place = INT_MAX;
#pragma unroll
    for (int i = kKept - 1; i >= 0; --i)
      if (order[i] == most) place = first + i;
    place = group_bound<kGroup, kShared, true>(mask, place);
    if (leads) t.classes[row] = place;
    return;
  }
  const float largest = score_of(most);
  float exponential[kKept];
  ExponentialSum all;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    exponential[i] = first + i < features ? __expf(__fsub_rn(score[i], largest)) : 0.0f;
    all.add(exponential[i]);
  }
  all.units = fold_group<kGroup, kShared>(mask, all.units, ExponentialSum::join);
  if (!counts) return;
  const float sum = all.value();
  float* out = t.scores + row * t.features + first;
  if (t.head == Head::kSoftmax) {
    const float part = __fdividef(1.0f, sum);  // the sum is between 1 and the number of features
#pragma unroll
    for (int i = 0; i < kKept; ++i)
      if (first + i < features) out[i] = __fmul_rn(exponential[i], part);
  } else {
    const float logarithm = __logf(sum);
#pragma unroll
    for (int i = 0; i < kKept; ++i)
      if (first + i < features) out[i] = __fsub_rn(__fsub_rn(score[i], largest), logarithm);
  }
}

}  // namespace bitgnn::cuda::pairs
