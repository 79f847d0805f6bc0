// Sums over edges of a row by a group of lanes, for wide rows: every lane adds up its own elements,
// all edges of a step are in flight at once, and their indices and factors are read once.
#pragma once

#include "pairs/cuda/sum_terms.h"
#include "pairs/cuda/wide/rows.cuh"

namespace bitgnn::cuda::pairs {

// Sums of a lane's elements, and of the factors if they are needed.
template <NarrowSum kSum>
struct WideSums {
  static constexpr bool kOnes = kSum == NarrowSum::kFactorsOnes;
  float sum[kWideElements] = {};
  float ones = 0.0f;

  // sum = fma(factor, half, sum).
  template <class Elements>
  __device__ __forceinline__ void add_edge(const uint4& x, float factor) {
    const uint32_t word[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 half = Elements::values(word[k]);
      sum[2 * k] = __fmaf_rn(factor, half.x, sum[2 * k]);
      sum[2 * k + 1] = __fmaf_rn(factor, half.y, sum[2 * k + 1]);
    }
    if constexpr (kOnes) ones = __fadd_rn(ones, factor);
  }
  // Adds the sums of other slots of the same piece.
  __device__ __forceinline__ void add(const WideSums& other) {
#pragma unroll
    for (int i = 0; i < kWideElements; ++i) sum[i] = __fadd_rn(sum[i], other.sum[i]);
    if constexpr (kOnes) ones = __fadd_rn(ones, other.ones);
  }
  // The same for the slots of the lane `step` away. The whole warp takes part.
  __device__ __forceinline__ void add_lane(int step) {
#pragma unroll
    for (int i = 0; i < kWideElements; ++i)
      sum[i] = __fadd_rn(sum[i], __shfl_xor_sync(kFullWarp, sum[i], step));
    if constexpr (kOnes) ones = __fadd_rn(ones, __shfl_xor_sync(kFullWarp, ones, step));
  }
  // The total of a single piece.
  __device__ __forceinline__ WideSums alone() const {
    if constexpr (kSum != NarrowSum::kPlain) return *this;
    WideSums total;
    total.add_piece(*this);
    return total;
  }
  // Adds the sums of the next piece to a total.
  __device__ __forceinline__ void add_piece(const WideSums& piece) {
#pragma unroll
    for (int i = 0; i < kWideElements; ++i) sum[i] = pairs::add_piece<kSum>(sum[i], piece.sum[i]);
    if constexpr (kOnes) ones = __fadd_rn(ones, piece.ones);
  }
};

// State with which groups of `kLanes` lanes walk through steps of up to kEdges edges each, side by
// side.
template <class Elements, NarrowSum kSum, int kLanes, int kEdges>
struct WideWalk {
  using Sums = WideSums<kSum>;
  static constexpr int kOwn = kLanes < kEdges ? kEdges / kLanes : 1;  // edges per lane
  static constexpr int kCheck = 4;  // edges between checks for groups with more
  static_assert(kEdges % kCheck == 0);

  const char* x;  // the lane's part of the first row
  const float* factors;
  uint32_t pitch;
  int part;             // the lane's number in its group
  int32_t index[kOwn];  // of edges `part`, `part + kLanes` and so on of the next step

  // `own` is the address of the lane's elements of the first row.
  __device__ WideWalk(const WideTable& table, const char* own)
      : x(own),
        factors(table.factors),
        pitch(table.pitch),
        part(static_cast<int>(threadIdx.x) % kLanes) {}

  // Loads the indices of a step of `count` edges, which are `apart` from one another. Missing edges
  // read the first row, which exists if any edge does.
  __device__ __forceinline__ void fetch(const int32_t* indices, int count, int apart) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int at = part + i * kLanes;
      index[i] = at < min(count, kEdges) ? __ldg(indices + at * apart) : 0;
    }
  }

  // Sums `count` edges whose indices were fetched in order; `longest` is the largest count in the
  // warp. Calls fetch_next() once the indices have been used.
  template <class Next>
  __device__ __forceinline__ Sums chain(int count, int longest, const Next& fetch_next) {
    Sums slot[1];
    slots(slot, count, longest, fetch_next);
    return slot[0];
  }

  // The same with edge k added to slot k % kSlots.
  template <int kSlots, class Next>
  __device__ __forceinline__ void slots(Sums (&slot)[kSlots], int count, int longest,
                                        const Next& fetch_next) {
    static_assert(kEdges % kSlots == 0, "a step starts with the first slot");
    Gathered g;
    gather(g, count, longest);
    fetch_next();
#pragma unroll
    for (int first = 0; first < kEdges; first += kCheck) {
      if (first >= longest) break;
#pragma unroll
      for (int k = first; k < first + kCheck; ++k)
        slot[k % kSlots].template add_edge<Elements>(g.x[k], factor_of(g, k));
    }
  }

  // The folded slots of a row of a single step.
  template <class Next>
  __device__ __forceinline__ Sums row(int count, int longest, const Next& fetch_next) {
    static_assert(kEdges == 2 * kSumSlots, "a slot has one edge or two");
    Gathered g;
    gather(g, count, longest);
    fetch_next();
    if (longest == 0) return {};  // nothing was loaded
    if (longest <= kCheck) return folded<kCheck, 0, 1>(g);
    if (longest <= 2 * kCheck) return folded<2 * kCheck, 0, 1>(g);
    if (longest <= 3 * kCheck) return folded<3 * kCheck, 0, 1>(g);
    return folded<kEdges, 0, 1>(g);
  }

 private:
  struct Gathered {
    uint4 x[kEdges];
    float factor[kOwn];
  };

  __device__ __forceinline__ void gather(Gathered& g, int count, int longest) const {
    // Missing edges have a factor of 0, which changes nothing.
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const bool exists = part + i * kLanes < min(count, kEdges);
      if constexpr (kSum == NarrowSum::kPlain)
        g.factor[i] = exists ? 1.0f : 0.0f;
      else
        g.factor[i] = exists ? __ldg(factors + index[i]) : 0.0f;
    }
#pragma unroll
    for (int first = 0; first < kEdges; first += kCheck) {
      if (first >= longest) break;
#pragma unroll
      for (int k = first; k < first + kCheck; ++k) {
        const auto row =
            static_cast<uint32_t>(__shfl_sync(kFullWarp, index[k / kLanes], k % kLanes, kLanes));
        g.x[k] = __ldg(reinterpret_cast<const uint4*>(x + uint64_t{row} * pitch));
      }
    }
  }

  __device__ __forceinline__ static float factor_of(const Gathered& g, int k) {
    return __shfl_sync(kFullWarp, g.factor[k / kLanes], k % kLanes, kLanes);
  }

  // Slots kFirst, kFirst + kStep and so on of the first kCount edges, folded. Slots without edges
  // are zeros, which change nothing.
  template <int kCount, int kFirst, int kStep>
  __device__ __forceinline__ static Sums folded(const Gathered& g) {
    if constexpr (kStep == kSumSlots) {
      Sums sums;
#pragma unroll
      for (int k = kFirst; k < kCount; k += kSumSlots)
        sums.template add_edge<Elements>(g.x[k], factor_of(g, k));
      return sums;
    } else {
      Sums sums = folded<kCount, kFirst, 2 * kStep>(g);
      if constexpr (kFirst + kStep < kCount) sums.add(folded<kCount, kFirst + kStep, 2 * kStep>(g));
      return sums;
    }
  }
};

}  // namespace bitgnn::cuda::pairs
