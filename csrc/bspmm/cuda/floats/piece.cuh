// Work distribution of dense aggregations: blocks take chunks of features and rows, groups of lanes
// take pieces of the table's rows.
#pragma once

#include "bspmm/arguments.h"
#include "bspmm/cuda/floats/finish.cuh"
#include "bspmm/cuda/floats/rows.cuh"
#include "bspmm/cuda/floats/table.cuh"
#include "bspmm/cuda/row_order.cuh"

namespace bitgnn::cuda::bspmm {

constexpr int kDenseThreads = 256;

struct DenseLaunch {
  AggregateArgs a;
  RowTable table;
  bool padded;       // the table's pieces are whole for any number of features
  bool chunk_major;  // chunk by chunk; otherwise all chunks of the first rows first
  RowOrder order;
  unsigned chunks;
  unsigned light_blocks;
  int64_t first_chunk;
};

// A block's role: a chunk, and a place among the heavy or light blocks; heavy ones come first.
struct BlockRole {
  bool heavy;
  unsigned place;
  int64_t chunk;

  __device__ explicit BlockRole(const DenseLaunch& d) {
    const unsigned each = d.order.heavy_blocks + d.light_blocks;
    place = d.chunk_major ? blockIdx.x % each : blockIdx.x / d.chunks;
    chunk = d.first_chunk + (d.chunk_major ? blockIdx.x / each : blockIdx.x % d.chunks);
    heavy = place < d.order.heavy_blocks;
    if (!heavy) place -= d.order.heavy_blocks;
  }
};

// The lane's place: its piece and features.
template <class Rows, int kLanes>
struct Piece {
  static constexpr int kFeatures = kLanes * Rows::kWidth;
  static constexpr int kBytes = Rows::template kPieceBytes<kLanes>;
  // Lanes of a group; those beyond kLanes help with the indices.
  static constexpr int kSpan = kLanes == 12 ? 16 : kLanes;
  using Fragment = typename Rows::Fragment;

  int lane;
  const char* x;
  uint32_t pitch;

  __device__ Piece(const DenseLaunch& d, int64_t chunk, int lane_in_group)
      : lane(lane_in_group), pitch(d.table.pitch_bytes) {
    // Lanes past the last feature read what others read, and their sums are dropped.
    const bool reads = d.padded ? lane < kLanes : first(chunk) < limit(d, chunk);
    x = d.table.x + chunk * d.table.chunk_bytes + (reads ? Rows::offset(lane) : 0);
    // Keeps the address in registers; the compiler would recompute it for every edge.
    asm volatile("" : "+l"(x), "+r"(pitch));
  }
  __device__ int64_t first(int64_t chunk) const { return chunk * kFeatures + lane * Rows::kWidth; }
  __device__ static int64_t limit(const DenseLaunch& d, int64_t chunk) {
    return min(d.a.features, (chunk + 1) * kFeatures);
  }
  __device__ const Fragment* at(int32_t row) const {
    return reinterpret_cast<const Fragment*>(x + static_cast<uint64_t>(static_cast<uint32_t>(row)) *
                                                     pitch);
  }
};

}  // namespace bitgnn::cuda::bspmm
