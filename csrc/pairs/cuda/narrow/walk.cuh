// Walks a row of a pattern over narrow rows: a group of lanes has eight slots of one edge each and
// yields the sums of the row's pieces in the order of bspmm/narrow_sums.h.
#pragma once

#include "pairs/cuda/narrow/edges.cuh"
#include "pairs/cuda/narrow/table.cuh"

namespace bitgnn::cuda::pairs {

constexpr int kNarrowThreads = 128;

// Terms of the sums: the elements alone, or times the rows' factors, whose own sum is needed, too,
// if products are odd.
enum class NarrowSum : int { kPlain, kFactors, kFactorsOnes };

// Folds sum[0 .. kCount) of lanes `kStep` apart; if the count is even, each of the two keeps half
// of the elements, from `first` on. The lanes of `mask` take part.
template <int kCount, int kStep, int kLanes, int kSize>
__device__ __forceinline__ void fold_lanes(float (&sum)[kSize], unsigned mask, int lane,
                                           int& first) {
  if constexpr (kStep >= kLanes) {
    constexpr int kKept = kCount % 2 == 0 ? kCount / 2 : kCount;
    const bool upper = kCount % 2 == 0 && (lane & kStep) != 0;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const float given = upper ? sum[i] : sum[i + kCount - kKept];
      const float kept = upper ? sum[i + kCount - kKept] : sum[i];
      sum[i] = __fadd_rn(kept, __shfl_xor_sync(mask, given, kStep));
    }
    first += upper ? kKept : 0;
    fold_lanes<kKept, kStep / 2, kLanes>(sum, mask, lane, first);
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

// How a row is shared: each slot has one lane per fragment, with kLoads in flight.
template <class Row_, int kLoads_>
struct NarrowShare {
  using Row = Row_;
  static constexpr int kLoads = kLoads_;
  static constexpr int kGroup = Row::kLanes * kSumSlots;
  static constexpr int kGroups = kNarrowThreads / kGroup;
  static constexpr int kKept = folded(Row::kUsed, kSumSlots);
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
  static constexpr int kStep = kLoads * kSumSlots;  // edges at a time
  static constexpr int kSums = Row::kUsedWords * Row::Elements::kPerWord;
  static_assert(kSumPiece % kStep == 0, "pieces end with a step");

  const char* x;
  int lane, slot, part;
  unsigned mask;  // of the group
  float sums[kSums];
  float factors;

  __device__ explicit NarrowWalk(const char* table) : lane(static_cast<int>(threadIdx.x) % kWarp) {
    slot = lane / Row::kLanes % kSumSlots;
    part = lane % Row::kLanes;
    mask = kGroup == kWarp ? kFullWarp : ((1u << (kGroup % kWarp)) - 1) << (lane / kGroup * kGroup);
    x = table + part * sizeof(Fragment);
    // Keeps the address in registers; the compiler would recompute it for every edge.
    asm volatile("" : "+l"(x));
  }

  // Lanes that differ only in these bits keep the same elements; one of them counts.
  static constexpr int kSharedLanes = shared_lanes(Row::kUsed, kGroup / 2, Row::kLanes);
  __device__ bool counts() const { return (lane & kSharedLanes) == 0; }

  using Lane = GroupLane<kLoads, Row::kLanes>;

  __device__ Lane place_in_group() const { return {slot, part * kSumSlots + slot, mask}; }

  // First of the lane's elements in a row of kLanes * kUsed.
  __device__ int first_element() const {
    int first = part * Row::kUsed;
    skip_lanes<Row::kUsed, kGroup / 2>(first);
    return first;
  }

  // Calls emit(sums) for each piece of `count` edges of a row from `place` on, in order. Lanes of a
  // group take the same branches, different groups may not.
  template <class Edges, class Emit>
  __device__ __forceinline__ void add(Edges& edges, int64_t place, int count, const Emit& emit) {
    clear();
    edges.seek(place);
    int left = count - slot;  // edges from the slot's next one on
    typename Edges::Step next;
    const auto at = [&](int32_t row) {
      return reinterpret_cast<const Fragment*>(
          x + static_cast<uint64_t>(static_cast<uint32_t>(row)) * Row::kPitchBytes);
    };
    edges.load(next, left);
    int to_end = kSumPiece / kStep;  // steps left in the piece
    int rest = count;
    for (; rest >= kStep; rest -= kStep) {
      Fragment f[kLoads];
#pragma unroll
      for (int l = 0; l < kLoads; ++l) f[l] = __ldg(at(edges.column(next, l)));
      edges.skip(kStep);
      left -= kStep;
      edges.load(next, left);
#pragma unroll
      for (int l = 0; l < kLoads; ++l) add_row(f[l], true);
      if (--to_end == 0) {
        emit(fold());
        clear();
        to_end = kSumPiece / kStep;
      }
    }
    if (rest > 0) {
      Fragment f[kLoads];
#pragma unroll
      for (int l = 0; l < kLoads; ++l) {
        const int32_t column = edges.column(next, l);
        f[l] = Fragment{};
        if (left > l * kSumSlots) f[l] = __ldg(at(column));
      }
#pragma unroll
      for (int l = 0; l < kLoads; ++l) {
        if (rest <= l * kSumSlots) break;
        add_row(f[l], left > l * kSumSlots);
      }
    }
    if (rest > 0 || to_end < kSumPiece / kStep) emit(fold());
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
    for (float& sum : sums) sum = 0.0f;
    factors = 0.0f;
  }

  __device__ __forceinline__ void add_row(const Fragment& fragment, bool exists) {
    uint32_t word[Row::kWords];
    memcpy(word, &fragment, sizeof(word));
    // A fragment of zeros has factor 0.
    float factor = __uint_as_float(word[Row::kWords - 1]);
    if constexpr (Row::kFactor == FactorPlace::kLast)
      factor = __shfl_sync(mask, factor, Row::kLanes - 1, Row::kLanes);
    if constexpr (Row::kFactor == FactorPlace::kNone) factor = exists ? 1.0f : 0.0f;
    if constexpr (kSum == NarrowSum::kFactorsOnes) factors = __fadd_rn(factors, factor);
#pragma unroll
    for (int w = 0; w < Row::kUsedWords; ++w)
      Row::Elements::add(sums + w * Row::Elements::kPerWord, word[w], factor);
  }

  __device__ __forceinline__ NarrowSums<Share> fold() {
    int first = 0;
    fold_lanes<Row::kUsed, kGroup / 2, Row::kLanes>(sums, mask, lane, first);
    NarrowSums<Share> result;
#pragma unroll
    for (int i = 0; i < Share::kKept; ++i) result.sum[i] = sums[i];
    result.ones = factors;
    if constexpr (kSum == NarrowSum::kFactorsOnes) {
#pragma unroll
      for (int step = kGroup / 2; step >= Row::kLanes; step /= 2)
        result.ones = __fadd_rn(result.ones, __shfl_xor_sync(mask, result.ones, step));
    }
    return result;
  }
};

}  // namespace bitgnn::cuda::pairs
