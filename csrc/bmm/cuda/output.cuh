// Output kinds of a product of packed rows.
#pragma once

#include "bmm/arguments.h"
#include "core/cuda/common.cuh"

namespace bitgnn::cuda::bmm {

__device__ __forceinline__ int64_t output_words(const BmmArgs& a) {
  return (a.out_features + kWordBits - 1) / kWordBits;
}

// Output kind of a product. kSigns compares the bare product with zero and never leaves the
// integers; sums are products with an addend.
enum class BmmOutput : int { kSigns, kBits, kFloat, kInt, kSumBits, kSumFloat };

inline BmmOutput bmm_output(const BmmArgs& a) {
  const bool sums = a.addend != nullptr;
  if (a.out_float != nullptr) return sums ? BmmOutput::kSumFloat : BmmOutput::kFloat;
  if (a.out_int != nullptr) return BmmOutput::kInt;
  if (sums) return BmmOutput::kSumBits;
  return a.bias == nullptr && a.threshold == nullptr ? BmmOutput::kSigns : BmmOutput::kBits;
}

}  // namespace bitgnn::cuda::bmm
