// Whether a value reaches a threshold, as the next bit of a word.
#pragma once

#include "core/cuda/common.cuh"

namespace bitgnn::cuda::pack {

// The largest number below a threshold; there is none below -infinity.
__device__ __forceinline__ float next_below(float threshold) {
  if (threshold != threshold || threshold == -INFINITY) return threshold;
  if (threshold == 0.0f) return __int_as_float(static_cast<int32_t>(0x80000001u));
  const int32_t bits = __float_as_int(threshold);
  return __int_as_float(bits + (bits < 0 ? 1 : -1));
}

// `bits` moved up by one, with the bit of value >= threshold below them. With kBySign the threshold
// is given as the number below it: the difference of the two is then negative, so that one
// subtraction and one shift that takes its sign do what a comparison and an addition to the word
// would do on the slower unit. NaN has no sign.
template <bool kBySign, class Value>
__device__ __forceinline__ uint32_t with_level(uint32_t bits, Value value, Value threshold) {
  if constexpr (kBySign)
    return __funnelshift_l(__float_as_uint(__fsub_rn(threshold, value)), bits, 1);
  else
    return bits << 1 | (value >= threshold ? 1u : 0u);
}

}  // namespace bitgnn::cuda::pack
