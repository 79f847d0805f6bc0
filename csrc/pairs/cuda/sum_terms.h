// Terms that sums of narrow or wide rows add up, and how the sums of pieces are joined.
#pragma once

#include "core/cuda/common.cuh"

namespace bitgnn::cuda::pairs {

// The elements alone, or times the rows' factors, whose own sum is needed, too, if products are
// odd or shifted.
enum class NarrowSum : int { kPlain, kFactors, kFactorsOnes };

// Adds up pieces: floats, or for plain sums integers, which each piece holds exactly as a float and
// whose total has the bits of an integer.
template <NarrowSum kSum>
__device__ __forceinline__ float add_piece(float total, float piece) {
  if constexpr (kSum == NarrowSum::kPlain)
    return __int_as_float(__float_as_int(total) + static_cast<int32_t>(piece));
  return __fadd_rn(total, piece);
}

// The product's sum: 2 * sum of halves, plus for odd products the sum of the factors.
template <NarrowSum kSum>
__device__ __forceinline__ float doubled(float sum, float ones, int64_t degree, bool odd) {
  // An integer of any size is rounded once.
  if constexpr (kSum == NarrowSum::kPlain)
    return __int2float_rn(2 * __float_as_int(sum) + (odd ? static_cast<int32_t>(degree) : 0));
  const float v = __fmul_rn(2.0f, sum);
  return kSum == NarrowSum::kFactorsOnes && odd ? __fadd_rn(v, ones) : v;
}

}  // namespace bitgnn::cuda::pairs
