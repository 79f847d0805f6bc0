// How a block of the ternary tile product fills shared memory with the planes of its rows: packing
// them from floats, alone or shared out in a cluster, or copying what was packed before. Loads of
// the first pieces are issued by start(), ahead of other loads, and used by finish().
#pragma once

#include "bitgnn/cuda/cluster.cuh"
#include "bitgnn/cuda/mma_b1.cuh"
#include "bitgnn/cuda/ternary_bits.cuh"
#include "bitgnn/cuda/ternary_tile.h"

namespace bitgnn::cuda {

__device__ __forceinline__ void add_remote([[maybe_unused]] uint32_t to,
                                           [[maybe_unused]] uint32_t rank,
                                           [[maybe_unused]] uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(to), "r"(rank));
  asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], %1;\n" ::"r"(there), "r"(value)
               : "memory");
#endif
}

__device__ __forceinline__ void store_remote([[maybe_unused]] uint32_t to,
                                             [[maybe_unused]] uint32_t rank,
                                             [[maybe_unused]] const uint4& v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(to), "r"(rank));
  asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};\n" ::"r"(there), "r"(v.x),
               "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
#endif
}

// Rows of floats at 16-byte aligned addresses, whole pieces of eight. A warp packs units of 256.
template <class T>
struct FloatSource {
  const T* x;
  int64_t stride;
  int cols;
  const float* scale;
  uint32_t neg_mask;  // 0 for boolean rows

  template <class Tile>
  struct Fill {
    typename TernaryLimits<T>::Piece piece[Tile::kBatch];
    float scale;
    int first;  // unit of the next batch

    // Unit i of the batch, and its row.
    static __device__ __forceinline__ int unit(int first, int i) {
      return first + i * Tile::kWarps * Tile::kCluster;
    }
    __device__ __forceinline__ void load(const FloatSource& s, const TernaryTilePlan& plan,
                                         int64_t first_row, int units) {
      const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
      for (int i = 0; i < Tile::kBatch; ++i) {
        const int at = unit(first, i);
        const auto row = static_cast<int>(plan.row_units.divide(at));
        const int column = (at - row * static_cast<int>(plan.row_units.divisor)) * kUnitFloats +
                           lane * kPieceFloats;
        piece[i] = at < units && column < s.cols
                       ? load_piece(s.x + (first_row + row) * s.stride + column)
                       : TernaryLimits<T>::nothing();
      }
    }
    __device__ __forceinline__ void start(const FloatSource& s, const TernaryTilePlan& plan,
                                          int64_t first_row, int rows) {
      const int rank = Tile::kCluster > 1 ? static_cast<int>(cluster_rank()) : 0;
      first = static_cast<int>(threadIdx.x) / kWarp * Tile::kCluster + rank;
      load(s, plan, first_row, rows * static_cast<int>(plan.row_units.divisor));
      scale = load_in_place(s.scale);
    }
    __device__ __forceinline__ void finish(const FloatSource& s, const TernaryTilePlan& plan,
                                           int64_t first_row, int rows, uint32_t* planes,
                                           int32_t* counts) {
      const int lane = static_cast<int>(threadIdx.x) % kWarp;
      const int units = rows * static_cast<int>(plan.row_units.divisor);
      const TernaryLimits<T> limits(scale);
#pragma unroll 1
      while (true) {
        // Units past the last one have no bits; they pass through the same steps, to no place.
        PieceBits bits[Tile::kBatch];
        int count[Tile::kBatch];
#pragma unroll
        for (int i = 0; i < Tile::kBatch; ++i) {
          bits[i] = limits.bits(piece[i]);
          bits[i].neg &= s.neg_mask;
          count[i] = __reduce_add_sync(kFullWarp, bits[i].count());
        }
#pragma unroll
        for (int i = 0; i < Tile::kBatch; ++i) {
          const int at = unit(first, i);
          const auto row = static_cast<int>(plan.row_units.divide(at));
          const int place = at - row * static_cast<int>(plan.row_units.divisor);
          uint32_t* to = planes + row * plan.pitch + place * (kUnitGroups * kGroupWords);
          auto* byte = reinterpret_cast<uint8_t*>(to) + lane / 8 * 16 + lane % 8;
          if (at < units) {
            byte[0] = static_cast<uint8_t>(PieceBits::byte(bits[i].pos));
            byte[8] = static_cast<uint8_t>(PieceBits::byte(bits[i].neg));
            if (Tile::kCluster == 1 && lane == 0) atomicAdd(counts + row, count[i]);
          }
          if constexpr (Tile::kCluster > 1) {
            if (at < units) share<Tile>(to, counts + row, count[i], lane);
          }
        }
        first = unit(first, Tile::kBatch);
        if (first >= units) return;
        load(s, plan, first_row, units);
      }
    }
  };

  // A warp's four groups to the other blocks of the cluster, its count to all of them.
  template <class Tile>
  static __device__ __forceinline__ void share(uint32_t* to, int32_t* counter, int count,
                                               int lane) {
    const auto rank = static_cast<int>(cluster_rank());
    __syncwarp();
    const uint4 own = *reinterpret_cast<const uint4*>(to + lane % kUnitGroups * kGroupWords);
    const uint32_t target = shared_address(to + lane % kUnitGroups * kGroupWords);
#pragma unroll
    for (int c = lane / kUnitGroups; c < Tile::kCluster; c += kWarp / kUnitGroups)
      if (c != rank) store_remote(target, c, own);
    if (lane < Tile::kCluster) add_remote(shared_address(counter), lane, count);
  }
};

// Rows packed before: [rows, 2, words]. A thread copies groups of 64 features. kPairs: two words of
// a plane lie at an 8-byte aligned address.
template <bool kPairs>
struct PlaneSource {
  const int32_t* x;
  const int32_t* counts;

  template <class Tile>
  struct Fill {
    uint4 group[Tile::kBatch];
    int32_t count;
    int first;

    static __device__ __forceinline__ int item(int first, int i) {
      return first + i * Tile::kThreads;
    }
    __device__ __forceinline__ void load(const PlaneSource& s, const TernaryTilePlan& plan,
                                         int64_t first_row, int items) {
#pragma unroll
      for (int i = 0; i < Tile::kBatch; ++i) {
        const int at = item(first, i);
        const auto row = static_cast<int>(plan.row_groups.divide(at));
        const int word = 2 * (at - row * static_cast<int>(plan.row_groups.divisor));
        const int32_t* pos = s.x + (first_row + row) * 2 * plan.words + word;
        const int32_t* neg = pos + plan.words;
        group[i] = make_uint4(0, 0, 0, 0);
        if (at >= items || word >= plan.words) continue;
        if constexpr (kPairs) {
          const uint2 p = load_in_place(reinterpret_cast<const uint2*>(pos));
          const uint2 n = load_in_place(reinterpret_cast<const uint2*>(neg));
          group[i] = make_uint4(p.x, p.y, n.x, n.y);
        } else {
          group[i].x = static_cast<uint32_t>(pos[0]);
          group[i].z = static_cast<uint32_t>(neg[0]);
          if (word + 1 < plan.words) {
            group[i].y = static_cast<uint32_t>(pos[1]);
            group[i].w = static_cast<uint32_t>(neg[1]);
          }
        }
      }
    }
    __device__ __forceinline__ void start(const PlaneSource& s, const TernaryTilePlan& plan,
                                          int64_t first_row, int rows) {
      first = static_cast<int>(threadIdx.x);
      load(s, plan, first_row, rows * static_cast<int>(plan.row_groups.divisor));
      if (first < rows) count = load_in_place(s.counts + first_row + first);
    }
    __device__ __forceinline__ void finish(const PlaneSource& s, const TernaryTilePlan& plan,
                                           int64_t first_row, int rows, uint32_t* planes,
                                           int32_t* counts_of_rows) {
      const int items = rows * static_cast<int>(plan.row_groups.divisor);
      if (first < rows) counts_of_rows[first] = count;
#pragma unroll 1
      while (true) {
#pragma unroll
        for (int i = 0; i < Tile::kBatch; ++i) {
          const int at = item(first, i);
          if (at >= items) break;
          const auto row = static_cast<int>(plan.row_groups.divide(at));
          const int place = at - row * static_cast<int>(plan.row_groups.divisor);
          *reinterpret_cast<uint4*>(planes + row * plan.pitch + place * kGroupWords) = group[i];
        }
        first = item(first, Tile::kBatch);
        if (first >= items) return;
        load(s, plan, first_row, items);
      }
    }
  };
};

}  // namespace bitgnn::cuda
