// Aggregation over FRDC 4 x 4 tiles with dynamic coarsening (BitGNN paper, algorithm 1): a warp
// takes a tile row and joins the set bits of its tiles into 32-bit words, one of the four adjacency
// rows at a time; the words of the 32 matching activation rows are transposed to one word per
// feature and lane. Unlike in the paper, columns without an edge are left out of the words, since
// tiles of real graphs hold little more than one edge. Bound by instructions: a transposition and a
// popcount for 32 edges and 32 features.
#pragma once

#include "bspmm/cuda/row_order.cuh"
#include "bspmm/cuda/values.cuh"

namespace bitgnn::cuda::bspmm {

constexpr int kFrdcThreads = 256;
constexpr int kFrdcWarps = kFrdcThreads / kWarp;
// Pending edges of an adjacency row: fewer than a word's, plus at most four from each of 32 tiles.
constexpr int kFrdcQueue = kWarp + kTileDim * kWarp;

struct FrdcLaunch {
  FrdcArgs args;
  RowOrder order;  // of tile rows
  bool aligned;    // the words of a chunk are one aligned vector
  int64_t first_chunk;
};

// Bit n of lane l's result is bit l of lane n's word.
__device__ __forceinline__ uint32_t transpose_warp(uint32_t word, int lane) {
  uint32_t mask = 0x0000ffffu;
#pragma unroll
  for (int step = 16; step != 0; step >>= 1) {
    const uint32_t other = __shfl_xor_sync(kFullWarp, word, step);
    word = (lane & step) == 0 ? (word & mask) | ((other & mask) << step)
                              : (word & ~mask) | ((other & ~mask) >> step);
    mask ^= mask << (step >> 1);
  }
  return word;
}

// Sum over the nodes of `row`, one per lane, for the feature with this lane's number.
template <Reconcile kMethod>
__device__ __forceinline__ int32_t row_dot(uint32_t row, uint32_t word, int lane) {
  if constexpr (kMethod == Reconcile::kIfElse) {
    int32_t sum = 0;
    const int count = __popc(row);
#pragma unroll 8
    for (int n = 0; n < count; ++n)
      sum += (__shfl_sync(kFullWarp, word, n) >> lane & 1u) != 0 ? 1 : -1;
    return sum;
  } else {
    const uint32_t feature = transpose_warp(word, lane);
    if constexpr (kMethod == Reconcile::kAndAndNot)
      return __popc(row & feature) - __popc(row & ~feature);
    return 2 * __popc(row & feature) - __popc(row);
  }
}

template <int kWords>
__device__ __forceinline__ void load_words(const int32_t* x, bool aligned, int64_t left,
                                           uint32_t (&word)[kWords]) {
  if constexpr (kWords == 4) {
    if (aligned) {
      const uint4 v = __ldg(reinterpret_cast<const uint4*>(x));
      word[0] = v.x;
      word[1] = v.y;
      word[2] = v.z;
      word[3] = v.w;
      return;
    }
  }
#pragma unroll
  for (int w = 0; w < kWords; ++w) word[w] = w < left ? static_cast<uint32_t>(__ldg(x + w)) : 0u;
}

// Set bits of each nibble of a tile, one per byte: the edges of the four adjacency rows.
__device__ __forceinline__ uint32_t count_rows(uint32_t tile) {
  uint32_t v = tile - (tile >> 1 & 0x5555u);
  v = (v & 0x3333u) + (v >> 2 & 0x3333u);
  v = (v & 0x00ffu) | (v & 0xff00u) << 8;
  return (v & 0x000f000fu) | (v & 0x00f000f0u) << 4;
}

// A warp's part of a tile row: 32 tiles from `first` on, then 32 more after every `step` tiles.
template <Reconcile kMethod, int kWords>
struct TileRow {
  const FrdcLaunch& launch;
  int32_t (*queue)[kFrdcQueue];  // [kTileDim][kFrdcQueue], this warp's
  int lane;
  int64_t first_word;
  int32_t sum[kTileDim][kWords] = {};

  __device__ TileRow(const FrdcLaunch& l, int32_t (*q)[kFrdcQueue], int lane_in_warp)
      : launch(l),
        queue(q),
        lane(lane_in_warp),
        first_word((l.first_chunk + blockIdx.y) * kWords) {}

  // Adds edges [from, from + count) of a row's queue.
  template <int kRow>
  __device__ __forceinline__ void add_edges(int from, int count) {
    const AggregateArgs& a = launch.args.csr;
    uint32_t word[kWords] = {};
    if (lane < count)
      load_words<kWords>(static_cast<const int32_t*>(a.x) +
                             static_cast<int64_t>(queue[kRow][from + lane]) * a.x_stride +
                             first_word,
                         launch.aligned, words_for(a.features) - first_word, word);
    const uint32_t row = count >= kWarp ? kFullWarp : (1u << count) - 1u;
#pragma unroll
    for (int w = 0; w < kWords; ++w) sum[kRow][w] += row_dot<kMethod>(row, word[w], lane);
  }

  // Takes whole words off the end of a row's queue, and the remaining edges after the last tiles.
  template <int kRow>
  __device__ __forceinline__ void drain(uint32_t& held, bool last) {
    int count = static_cast<int>(held >> (8 * kRow) & 0xffu);
    for (; count >= kWarp; count -= kWarp) {
      add_edges<kRow>(count - kWarp, kWarp);
      held -= static_cast<uint32_t>(kWarp) << (8 * kRow);
    }
    if (last && count > 0) add_edges<kRow>(0, count);
  }

  __device__ void add_tiles(const RowSpan& span, int first, int step) {
    const AggregateArgs& a = launch.args.csr;
    uint32_t held = 0;  // edges in the queues, one byte per row
    uint32_t next_tile = 0;
    int32_t next_column = 0;
    const auto fetch = [&](int t) {
      next_tile = 0;
      if (t + lane >= span.degree) return;
      next_tile = static_cast<uint16_t>(__ldg(launch.args.tiles + span.begin + t + lane));
      next_column = __ldg(a.indices + span.begin + t + lane);
    };
    fetch(first);
    for (int t = first; t < span.degree; t += step) {
      uint32_t tile = next_tile;
      const int32_t node = next_column * static_cast<int32_t>(kTileDim);
      fetch(t + step);
      const uint32_t mine = count_rows(tile);
      uint32_t place = mine;
#pragma unroll
      for (int distance = 1; distance < kWarp; distance *= 2) {
        const uint32_t below = __shfl_up_sync(kFullWarp, place, distance);
        if (lane >= distance) place += below;
      }
      const uint32_t total = __shfl_sync(kFullWarp, place, kWarp - 1);
      place += held - mine;
      held += total;
      for (; tile != 0; tile &= tile - 1) {
        const int bit = __ffs(static_cast<int>(tile)) - 1;
        const int shift = bit / static_cast<int>(kTileDim) * 8;
        queue[bit / static_cast<int>(kTileDim)][place >> shift & 0xffu] =
            node + bit % static_cast<int>(kTileDim);
        place += 1u << shift;
      }
      __syncwarp();
      const bool last = t + step >= span.degree;
      drain<0>(held, last);
      drain<1>(held, last);
      drain<2>(held, last);
      drain<3>(held, last);
      __syncwarp();
    }
  }

  __device__ void finish(int32_t tile_row) const {
    const AggregateArgs& a = launch.args.csr;
    const int64_t words = words_for(a.features);
#pragma unroll
    for (int r = 0; r < kTileDim; ++r) {
      const int64_t row = static_cast<int64_t>(tile_row) * kTileDim + r;
      if (row >= a.rows) return;
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        if (first_word + w >= words) break;
        const int64_t feature = (first_word + w) * kWordBits + lane;
        const bool exists = feature < a.features;
        if (a.out_int != nullptr) {
          if (exists) a.out_int[row * a.features + feature] = sum[r][w];
          continue;
        }
        const float value =
            exists ? aggregate_value(a, row, feature, static_cast<float>(sum[r][w])) : 0.0f;
        if (a.out_float != nullptr) {
          if (exists) a.out_float[row * a.features + feature] = value;
          continue;
        }
        const uint32_t bits = __ballot_sync(kFullWarp, exists && aggregate_bit(a, feature, value));
        if (lane == 0) a.out_bits[row * words + first_word + w] = static_cast<int32_t>(bits);
      }
    }
  }
};

// One warp per tile row; one block for each of the longest.
template <Reconcile kMethod, int kWords>
__global__ void __launch_bounds__(kFrdcThreads, 4)
    aggregate_frdc_kernel(const __grid_constant__ FrdcLaunch l) {
  __shared__ int32_t queue[kFrdcWarps][kTileDim][kFrdcQueue];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  AggregateArgs tile_rows = l.args.csr;
  tile_rows.rows = ceil_div(tile_rows.rows, kTileDim);
  if (blockIdx.x >= l.order.heavy_blocks) {
    const RowSpan span =
        light_row_at(tile_rows, l.order,
                     (static_cast<int64_t>(blockIdx.x) - l.order.heavy_blocks) * kFrdcWarps + warp);
    if (span.row < 0) return;
    TileRow<kMethod, kWords> tiles(l, queue[warp], lane);
    tiles.add_tiles(span, 0, kWarp);
    tiles.finish(span.row);
    return;
  }
  static_assert(kTileDim * kWords * kWarp <= kTileDim * kFrdcQueue);
  for_heavy_rows(tile_rows, l.order, blockIdx.x, [&](const RowSpan& span) {
    TileRow<kMethod, kWords> tiles(l, queue[warp], lane);
    tiles.add_tiles(span, warp * kWarp, kFrdcThreads);
    // The queues are empty now and hold the warps' sums.
    auto* part = reinterpret_cast<int32_t (*)[kTileDim * kFrdcQueue]>(queue);
#pragma unroll
    for (int i = 0; i < kTileDim * kWords; ++i)
      part[warp][i * kWarp + lane] = tiles.sum[i / kWords][i % kWords];
    __syncthreads();
    if (warp == 0) {
#pragma unroll
      for (int i = 0; i < kTileDim * kWords; ++i)
        for (int other = 1; other < kFrdcWarps; ++other)
          tiles.sum[i / kWords][i % kWords] += part[other][i * kWarp + lane];
      tiles.finish(span.row);
    }
    __syncthreads();
  });
}

}  // namespace bitgnn::cuda::bspmm
