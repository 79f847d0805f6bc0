// Thresholds of an aggregation as bit planes, for rows whose factor follows from their degree.
//
// Of degree d and factor s, feature o becomes a bit of its count c of +1 neighbours:
//   fl(fl(s * (2 c - d)) + bias[o]) >= threshold[o].
// As a rule that is a step of c, so there is a least count b with bit = (c >= b), or its inverse.
// Normalisations make s a function of d: a table of b for every small degree then turns the
// comparison of 32 features into one LOP3 instruction a plane, without any float. The factors of
// the table come from rows of the graph; a row whose factor differs from its degree's is compared
// in floats.
#pragma once

#include "bspmm/arguments.h"
#include "bspmm/cuda/count_planes.cuh"

namespace bitgnn::cuda::bspmm {

constexpr int kBoundPlanes = 6;
constexpr int kBoundDegrees = 1 << kBoundPlanes;  // degrees in the table
constexpr int kBoundRecord = kBoundPlanes + 1;    // rows of words of a degree

// The factor of a degree; `known` is 0 where no row of the degree was found or some feature's bit
// is no step.
struct BoundFactor {
  uint32_t scale;  // bits of the float
  uint32_t known;
};

// planes[d][p] holds plane p of the complement of b, planes[d][kBoundPlanes] the inverses; rows are
// `pitch` words long, a multiple of four. Null without a table.
struct BoundTable {
  const uint32_t* planes = nullptr;
  const BoundFactor* factors = nullptr;
  int pitch = 0;

  // For degrees of the table.
  __device__ __forceinline__ bool knows(int degree, float scale) const {
    const uint2 f = __ldg(reinterpret_cast<const uint2*>(factors + degree));
    return f.y != 0 && f.x == __float_as_uint(scale);
  }

  // Bits of kWords words of counts, right for a known degree; padding bits are arbitrary.
  template <int kWords, int kPlanes>
  __device__ __forceinline__ void compare(uint32_t (&bits)[kWords],
                                          const CountPlanes<kWords, kPlanes>& counts, int degree,
                                          int64_t first_word) const {
    // Planes that one side lacks are 0: neither counts nor bounds exceed the degree.
    constexpr int kCompared = kPlanes < kBoundPlanes ? kPlanes : kBoundPlanes;
    const uint32_t* record = planes + degree * kBoundRecord * pitch + first_word;
#pragma unroll
    for (int w = 0; w < kWords; ++w) bits[w] = ~0u;
#pragma unroll
    for (int p = 0; p < kCompared; ++p) {
      const WordVector<kWords> bound = load_words<kWords>(record + p * pitch);
#pragma unroll
      for (int w = 0; w < kWords; ++w)
        bits[w] = majority(counts.plane[p][w], bits[w], bound.word[w]);
    }
    const WordVector<kWords> inverse = load_words<kWords>(record + kBoundPlanes * pitch);
#pragma unroll
    for (int w = 0; w < kWords; ++w) bits[w] ^= inverse.word[w];
  }
};

// Launches the kernel that writes the table, in memory of the workspace, where one pays: there are
// thresholds or biases, and enough rows.
cudaError_t make_bounds(const AggregateArgs& a, const Context& context, BoundTable& table);

}  // namespace bitgnn::cuda::bspmm
