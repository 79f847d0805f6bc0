// A CSR row's edges as the walks over narrow rows read them.
#pragma once

#include "bspmm/cuda/row_order.cuh"
#include "bspmm/narrow_sums.h"
#include "pairs/arguments.h"

namespace bitgnn::cuda::pairs {

// Loads if count > place; otherwise the result is undefined.
__device__ __forceinline__ int32_t load_index(const int32_t* p, int place, int count) {
  int32_t v;
  asm("{.reg .pred p;\n setp.gt.s32 p, %2, %3;\n @p ld.global.nc.s32 %0, [%1];}"
      : "=r"(v)
      : "l"(p), "r"(count), "r"(place));
  return v;
}

// A lane of a group of kLanes * kSplit lanes. kLanes of them read the same edges: every kSplit-th
// one, kLoads per step.
template <int kLoads_, int kLanes_, int kSplit_>
struct GroupLane {
  static constexpr int kLoads = kLoads_;
  static constexpr int kLanes = kLanes_;
  static constexpr int kSplit = kSplit_;
  static constexpr int kGroup = kLanes * kSplit;

  int slot, in_group;  // the first edge it reads; which index of the next kGroup it loads

  // The column of its edge number `load`, which one of the lanes with the same edges holds. The
  // whole warp takes part.
  __device__ __forceinline__ int32_t shared(int32_t held, int load) const {
    if constexpr (kLanes == 1) return held;
    return __shfl_sync(kFullWarp, held, load % kLanes, kLanes);
  }
};

// A pattern yields rows of some degree, and their edges step by step.
struct CsrPattern {
  static constexpr bool kOrdered = false;

  struct Row {
    int64_t row;  // -1 for none
    int64_t begin;
    int64_t degree;
  };

  __device__ static Row row(const AggregateArgs& a, int64_t row) {
    const int64_t begin = bspmm::edge_begin(a, row);
    return {row, begin, bspmm::edge_begin(a, row + 1) - begin};
  }
  __device__ static Row light_row(const AggregateArgs& a, const bspmm::RowOrder&, int64_t slot) {
    return slot < a.rows ? row(a, slot) : Row{-1, 0, 0};
  }

  template <class Lane>
  class Edges {
   public:
    // Columns of a step's edges, possibly still being loaded.
    struct Step {
      int32_t column[Lane::kLoads];
    };

    __device__ Edges(const AggregateArgs& a, const Row& row, const Lane& lane)
        : row_(a.indices + row.begin + lane.slot), next_(row_) {}

    // Moves to the edge at `place` of the row, never back.
    __device__ void seek(int64_t place) { next_ = row_ + place; }
    __device__ void skip(int edges) { next_ += edges; }
    // `left` edges remain from the slot's next one on.
    __device__ __forceinline__ void load(Step& step, int left) const {
#pragma unroll
      for (int l = 0; l < Lane::kLoads; ++l)
        step.column[l] = load_index(next_ + l * Lane::kSplit, l * Lane::kSplit, left);
    }
    // Column of the slot's edge number `load`; called by all lanes of the group.
    __device__ __forceinline__ int32_t column(const Step& step, int load) const {
      return step.column[load];
    }

   private:
    const int32_t* row_;
    const int32_t* next_;
  };
};

// Rows in order of degree, except heavy ones. The lanes of a group read different indices and then
// share them: this saves L2 requests, which are the bound while all warps are busy; otherwise
// waiting for the other lanes costs more than that.
struct OrderedPattern : CsrPattern {
  static constexpr bool kOrdered = true;

  __device__ static Row of(const bspmm::RowSpan& span) {
    return {span.row, span.begin, span.degree};
  }
  __device__ static Row light_row(const AggregateArgs& a, const bspmm::RowOrder& order,
                                  int64_t slot) {
    if (slot >= a.rows) return {-1, 0, 0};
    const uint4 raw = __ldg(reinterpret_cast<const uint4*>(order.rows + slot));
    bspmm::RowSpan span;
    memcpy(&span, &raw, sizeof(span));
    return span.degree < order.heavy_degree ? of(span) : Row{-1, 0, 0};
  }

  template <class Lane>
  class Edges {
   public:
    static constexpr int kOwn = Lane::kLoads / Lane::kLanes;
    static_assert(Lane::kLoads % Lane::kLanes == 0, "a step's edges fill the group");

    struct Step {
      int32_t column[kOwn];
    };

    __device__ Edges(const AggregateArgs& a, const Row& row, const Lane& lane)
        : lane_(lane), row_(a.indices + row.begin + lane.in_group), next_(row_) {}

    __device__ void seek(int64_t place) { next_ = row_ + place; }
    __device__ void skip(int edges) { next_ += edges; }
    __device__ __forceinline__ void load(Step& step, int left) const {
      const int own_left = left + lane_.slot - lane_.in_group;
#pragma unroll
      for (int o = 0; o < kOwn; ++o)
        step.column[o] = load_index(next_ + o * Lane::kGroup, o * Lane::kGroup, own_left);
    }
    __device__ __forceinline__ int32_t column(const Step& step, int load) const {
      return lane_.shared(step.column[load / Lane::kLanes], load);
    }

   private:
    const Lane lane_;
    const int32_t* row_;
    const int32_t* next_;
  };
};

}  // namespace bitgnn::cuda::pairs
