// Walks a row of a pattern over narrow rows: a group of lanes, of which each has one slot or
// several ones, yields the sums of the row's pieces in the order of bspmm/narrow_sums.h.
#pragma once

#include <type_traits>

#include "pairs/cuda/narrow/edges.cuh"
#include "pairs/cuda/narrow/table.cuh"
#include "pairs/cuda/sum_terms.h"

namespace bitgnn::cuda::pairs {

constexpr int kNarrowThreads = 128;

// Folds sum[0 .. kCount) of lanes `kStep` apart; if the count is even, each of the two keeps half
// of the elements, from `first` on. The whole warp takes part.
template <int kCount, int kStep, int kLanes, int kSize>
__device__ __forceinline__ void fold_lanes(float (&sum)[kSize], int lane, int& first) {
  if constexpr (kStep >= kLanes) {
    constexpr int kKept = kCount % 2 == 0 ? kCount / 2 : kCount;
    const bool upper = kCount % 2 == 0 && (lane & kStep) != 0;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const float given = upper ? sum[i] : sum[i + kCount - kKept];
      const float kept = upper ? sum[i + kCount - kKept] : sum[i];
      sum[i] = __fadd_rn(kept, __shfl_xor_sync(kFullWarp, given, kStep));
    }
    first += upper ? kKept : 0;
    fold_lanes<kKept, kStep / 2, kLanes>(sum, lane, first);
  }
}

// Number of elements that fold_lanes leaves a lane.
constexpr int folded(int count, int slots) {
  return slots == 1 ? count : folded(count % 2 == 0 ? count / 2 : count, slots / 2);
}

// Steps between lanes to which fold_lanes leaves the same elements.
constexpr int shared_lanes(int count, int step, int lanes) {
  if (step < lanes) return 0;
  const bool halves = count % 2 == 0;
  return (halves ? 0 : step) + shared_lanes(halves ? count / 2 : count, step / 2, lanes);
}

// How a row is shared: each fragment has kSplit lanes, with kLoads in flight. Lane s has the slots
// s, s + kSplit and so on: fewer lanes have less to fold, more of them read long rows faster.
template <class Row_, int kLoads_, int kSplit_>
struct NarrowShare {
  using Row = Row_;
  static constexpr int kLoads = kLoads_;
  static constexpr int kSplit = kSplit_;
  static constexpr int kSlots = kSumSlots / kSplit;  // of a lane
  static constexpr int kGroup = Row::kLanes * kSplit;
  static constexpr int kGroups = kNarrowThreads / kGroup;
  static constexpr int kKept = folded(Row::kUsed, kSplit);
  static_assert(kGroup <= kWarp, "a group lies in a warp");
};

// A lane's share of the sums of one piece: elements [first, first + kKept) of the lane's part of
// the row, and the sum of the factors.
template <class Share>
struct NarrowSums {
  float sum[Share::kKept];
  float ones;
};

// Canonical sums of the pieces of a row, by a group of lanes.
template <class Share, NarrowSum kSum>
struct NarrowWalk {
  using Row = typename Share::Row;
  using Fragment = typename Row::Fragment;
  static constexpr int kLoads = Share::kLoads;
  static constexpr int kGroup = Share::kGroup;
  static constexpr int kSplit = Share::kSplit;
  static constexpr int kStep = kLoads * kSplit;  // edges at a time
  static constexpr int kSums = Row::kUsedWords * Row::Elements::kPerWord;
  static_assert(kSumPiece % kStep == 0, "pieces end with a step");
  static_assert(kLoads % Share::kSlots == 0, "a step starts with a lane's first slot");

  const char* x;
  const char* apart;  // the first row's factor
  int lane, slot, part;
  float sums[Share::kSlots][kSums];
  float factors[Share::kSlots];

  // Rows of single lanes start `offset` fragments behind the table's.
  __device__ explicit NarrowWalk(const char* table, int offset = 0)
      : lane(static_cast<int>(threadIdx.x) % kWarp) {
    slot = lane / Row::kLanes % kSplit;
    part = lane % Row::kLanes;
    x = table + (part + offset) * sizeof(Fragment);
    apart = table + Row::kPitchBytes - sizeof(float);
    // Keeps the address in registers; the compiler would recompute it for every edge.
    asm volatile("" : "+l"(x));
  }

  // Lanes that differ only in these bits keep the same elements; one of them counts.
  static constexpr int kSharedLanes = shared_lanes(Row::kUsed, kGroup / 2, Row::kLanes);
  __device__ bool counts() const { return (lane & kSharedLanes) == 0; }
  // The lanes of the group.
  __device__ unsigned mask() const {
    return kGroup == kWarp ? kFullWarp : ((1u << (kGroup % kWarp)) - 1) << (lane / kGroup * kGroup);
  }

  using Lane = GroupLane<kLoads, Row::kLanes, kSplit>;

  __device__ Lane place_in_group() const { return {slot, part * kSplit + slot}; }

  // First of the lane's elements in a row of kLanes * kUsed.
  __device__ int first_element() const {
    int first = part * Row::kUsed;
    skip_lanes<Row::kUsed, kGroup / 2>(first);
    return first;
  }

  // Calls emit(sums) for each piece of `count` edges of a row from `place` on, in order. The warp
  // takes part as a whole, with as many steps as its longest count needs: what other groups then
  // add are zeros, which change nothing.
  template <class Edges, class Emit>
  __device__ __forceinline__ void add(Edges& edges, int64_t place, int count, const Emit& emit) {
    clear();
    edges.seek(place);
    int left = count - slot;  // edges from the slot's next one on
    const int longest = __reduce_max_sync(kFullWarp, count);
    typename Edges::Step next;
    edges.load(next, left);
    int at = 0;
    const auto step = [&](auto whole) {
      constexpr bool kWhole = decltype(whole)::value;  // no edge is missing
      Fragment f[kLoads];
      float factor[kLoads];
#pragma unroll
      for (int l = 0; l < kLoads; ++l) {
        const auto row = static_cast<uint32_t>(edges.column(next, l));
        const uint64_t offset = static_cast<uint64_t>(row) * Row::kPitchBytes;
        const bool exists = kWhole || left > l * kSplit;
        if constexpr (kWhole)
          f[l] = __ldg(reinterpret_cast<const Fragment*>(x + offset));
        else
          f[l] = load_fragment<Fragment>(x + offset, exists);
        factor[l] = 0.0f;
        if constexpr (Row::kFactor == FactorPlace::kApart)
          if (exists) factor[l] = __ldg(reinterpret_cast<const float*>(apart + offset));
        if constexpr (Row::kFactor == FactorPlace::kNone) factor[l] = exists ? 1.0f : 0.0f;
      }
      edges.skip(kStep);
      left -= kStep;
      edges.load(next, left);
#pragma unroll
      for (int l = 0; l < kLoads; ++l) {
        if (!kWhole && l > 0 && at + l * kSplit >= longest) break;
        add_row(f[l], factor[l], l % Share::kSlots);
      }
      at += kStep;
      if (at % kSumPiece == 0 || at >= longest) {
        emit(fold());
        clear();
      }
    };
    if constexpr (kSplit == kSumSlots) {  // long rows are worth a loop of their own
      const int shortest = __reduce_min_sync(kFullWarp, count);
#pragma unroll 1
      while (at + kStep <= shortest) step(std::true_type());
    }
#pragma unroll 1
    while (at < longest) step(std::false_type());
  }

 private:
  template <int kCount, int kLanes>
  __device__ void skip_lanes(int& first) const {
    if constexpr (kLanes >= Row::kLanes) {
      constexpr int kKept = kCount % 2 == 0 ? kCount / 2 : kCount;
      if (kCount % 2 == 0 && (lane & kLanes) != 0) first += kKept;
      skip_lanes<kKept, kLanes / 2>(first);
    }
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int k = 0; k < Share::kSlots; ++k) {
#pragma unroll
      for (float& sum : sums[k]) sum = 0.0f;
      factors[k] = 0.0f;
    }
  }

  __device__ __forceinline__ void add_row(const Fragment& fragment, float factor, int own) {
    uint32_t word[Row::kWords];
    memcpy(word, &fragment, sizeof(word));
    if constexpr (Row::kFactor == FactorPlace::kEach || Row::kFactor == FactorPlace::kLast)
      factor = __uint_as_float(word[Row::kWords - 1]);
    if constexpr (Row::kFactor == FactorPlace::kLast)
      factor = __shfl_sync(kFullWarp, factor, Row::kLanes - 1, Row::kLanes);
    if constexpr (kSum == NarrowSum::kFactorsOnes) factors[own] = __fadd_rn(factors[own], factor);
#pragma unroll
    for (int w = 0; w < Row::kUsedWords; ++w)
      Row::Elements::add(sums[own] + w * Row::Elements::kPerWord, word[w], factor);
  }

  __device__ __forceinline__ NarrowSums<Share> fold() {
#pragma unroll
    for (int half = Share::kSlots / 2; half > 0; half /= 2) {
#pragma unroll
      for (int k = 0; k < half; ++k) {
#pragma unroll
        for (int i = 0; i < Row::kUsed; ++i) sums[k][i] = __fadd_rn(sums[k][i], sums[k + half][i]);
        factors[k] = __fadd_rn(factors[k], factors[k + half]);
      }
    }
    int first = 0;
    fold_lanes<Row::kUsed, kGroup / 2, Row::kLanes>(sums[0], lane, first);
    NarrowSums<Share> result;
#pragma unroll
    for (int i = 0; i < Share::kKept; ++i) result.sum[i] = sums[0][i];
    result.ones = factors[0];
    if constexpr (kSum == NarrowSum::kFactorsOnes) {
#pragma unroll
      for (int step = kGroup / 2; step >= Row::kLanes; step /= 2)
        result.ones = __fadd_rn(result.ones, __shfl_xor_sync(kFullWarp, result.ones, step));
    }
    return result;
  }
};

}  // namespace bitgnn::cuda::pairs
