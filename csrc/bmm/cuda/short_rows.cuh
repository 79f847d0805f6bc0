// Loads short packed rows as fragments of 1-bit products, directly from global memory.
#pragma once

#include "core/cuda/mma_b1.cuh"

namespace bitgnn::cuda::bmm {

constexpr int kShortGroup = 4;  // words that a lane loads at once

// A lane's words of a row, two per 256-bit step: words 4 q .. 4 q + 3 of each 16, which are two
// steps, and words 2 q and 2 q + 1 of a single last step. Both operands use this order.
template <int kSteps>
using ShortRow = uint32_t[2 * kSteps];

// Loads them, with zeros past the row; rows of whole groups are read as vectors.
template <int kSteps>
__device__ __forceinline__ void load_short_row(ShortRow<kSteps>& x, const int32_t* from, int words,
                                               bool vectors, int quad) {
#pragma unroll
  for (int s = 0; s < kSteps; s += 2) {
    const bool pair = s + 1 < kSteps;
    const int count = pair ? kShortGroup : kShortGroup / 2;
    const int first = s * kMmaWords + quad * count;
    if (vectors && pair) {
      const int4 v = first < words ? __ldg(reinterpret_cast<const int4*>(from + first))
                                   : make_int4(0, 0, 0, 0);
      x[2 * s] = v.x;
      x[2 * s + 1] = v.y;
      x[(2 * s + 2) % (2 * kSteps)] = v.z;
      x[(2 * s + 3) % (2 * kSteps)] = v.w;
    } else if (vectors) {
      const int2 v =
          first < words ? __ldg(reinterpret_cast<const int2*>(from + first)) : make_int2(0, 0);
      x[2 * s] = v.x;
      x[2 * s + 1] = v.y;
    } else {
#pragma unroll
      for (int k = 0; k < kShortGroup; ++k) {
        if (k < count) x[2 * s + k] = first + k < words ? __ldg(from + first + k) : 0;
      }
    }
  }
}

}  // namespace bitgnn::cuda::bmm
