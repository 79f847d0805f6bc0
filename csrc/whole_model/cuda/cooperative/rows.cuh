// Exchange of rows between blocks of the cooperative kernel, in pieces that carry their own tag.
#pragma once

#include "core/cuda/common.cuh"
#include "whole_model/cuda/cooperative/plan.h"

namespace bitgnn::cuda::whole_model {

__device__ __forceinline__ int stage_threads() { return static_cast<int>(blockDim.x); }
__device__ __forceinline__ int stage_warps() { return stage_threads() / kWarp; }

constexpr int kInFlight = 2;  // gathered pieces that a thread has in flight, if it has several

// A block's share of the graph.
struct Block {
  int first, rows, edges;
  const int32_t* rowptr;  // starts at 0
  const float* row_factor;
  const float* col_factor;
  const int32_t* indices;
  unsigned tag;
};

// Pieces are written and read by single 128-bit accesses.
__device__ __forceinline__ uint4 load_piece(const int4* from) {
  unsigned long long low, high;
  asm volatile(
      "{\n.reg .b128 piece;\n"
      "ld.relaxed.gpu.global.b128 piece, [%2];\n"
      "mov.b128 {%0, %1}, piece;\n}\n"
      : "=l"(low), "=l"(high)
      : "l"(from)
      : "memory");
  return make_uint4(static_cast<unsigned>(low), static_cast<unsigned>(low >> 32),
                    static_cast<unsigned>(high), static_cast<unsigned>(high >> 32));
}

__device__ __forceinline__ void store_piece(int4* to, const uint4& piece) {
  const unsigned long long low = piece.x | static_cast<unsigned long long>(piece.y) << 32;
  const unsigned long long high = piece.z | static_cast<unsigned long long>(piece.w) << 32;
  asm volatile(
      "{\n.reg .b128 piece;\n"
      "mov.b128 piece, {%1, %2};\n"
      "st.relaxed.gpu.global.b128 [%0], piece;\n}\n" ::"l"(to),
      "l"(low), "l"(high)
      : "memory");
}

// Publishes the block's rows: `pieces` pieces each, stored in shared memory without their tags.
__device__ __forceinline__ void publish_rows(int4* table, const uint32_t* rows, int pieces,
                                             const Block& block) {
  int4* own = table + static_cast<int64_t>(block.first) * pieces;
  for (int i = threadIdx.x; i < block.rows * pieces; i += stage_threads()) {
    const uint32_t* words = rows + i * kPieceWords;
    store_piece(own + i, make_uint4(words[0], words[1], words[2], block.tag));
  }
}

// Waits for the `count` pieces at place(i), kPieces per thread at a time.
template <int kPieces, class Place>
__device__ __forceinline__ void gather_pieces(int count, const Place& place, unsigned tag,
                                              uint4* staged) {
  for (int i = threadIdx.x; i < count; i += kPieces * stage_threads()) {
    const int4* from[kPieces];
    uint4 piece[kPieces];
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      from[k] = place(i + k * stage_threads() < count ? i + k * stage_threads() : i);
      piece[k] = load_piece(from[k]);
    }
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      while (piece[k].w != tag) piece[k] = load_piece(from[k]);
      if (i + k * stage_threads() < count) staged[i + k * stage_threads()] = piece[k];
    }
  }
}

// Waits for the rows that edges [first, last) of the block refer to, and stages them contiguously.
__device__ __forceinline__ void gather_rows(const int4* table, const StagePlan& plan,
                                            const Block& block, int first, int last,
                                            uint4* staged) {
  const int pieces = plan.gathered_pieces;
  const int count = (last - first) * pieces;
  const auto place = [&](int i) {
    const int edge = plan.by_gathered_pieces.quotient(i);
    const int64_t row = block.indices[first + edge];
    return table + (row * pieces + (i - edge * pieces));
  };
  if (count <= stage_threads())
    gather_pieces<1>(count, place, block.tag, staged);
  else
    gather_pieces<kInFlight>(count, place, block.tag, staged);
}

// Offset of word `word` of a gathered row from its first piece.
__device__ __forceinline__ int word_place(int word) { return word + word / kPieceWords; }

// Calls visit(row, part) for all `parts` parts of every row in [first, last) with more than `few`
// edges, each on one of the warps.
template <class Visit>
__device__ __forceinline__ void for_long_rows(const Block& block, int first, int last, int few,
                                              int parts, int warp, int lane, const Visit& visit) {
  int place = 0;  // among all parts
#pragma unroll 1
  for (int base = first; base < last; base += kWarp) {
    const int own = base + lane;
    const bool is_long = own < last && block.rowptr[own + 1] - block.rowptr[own] > few;
    unsigned found = __ballot_sync(kFullWarp, is_long);
#pragma unroll 1
    for (; found != 0; found &= found - 1) {
#pragma unroll 1
      for (int part = 0; part < parts; ++part)
        if (place++ % stage_warps() == warp) visit(base + __ffs(static_cast<int>(found)) - 1, part);
    }
  }
}

// End of the rows from `first` on whose edges fit together; at least one row.
__device__ __forceinline__ int rows_together(const Block& block, int first, int most_edges) {
  const int begin = block.rowptr[first];
  if (block.edges - begin <= most_edges) return block.rows;
  int low = first + 1, high = block.rows;  // low fits or is a single row, high does not fit
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (block.rowptr[middle] - begin <= most_edges)
      low = middle;
    else
      high = middle;
  }
  return low;
}

}  // namespace bitgnn::cuda::whole_model
