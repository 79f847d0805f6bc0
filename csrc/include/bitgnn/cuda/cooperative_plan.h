// Everything about a cooperative launch that is known before it: no block works it out again.
#pragma once

#include <cuda_runtime.h>

#include "bitgnn/cooperative.h"

namespace bitgnn::cuda {

// Threads of a block: few where a row of features is so long that more warps would each have little
// of theirs on its way.
constexpr int kMostStageThreads = 768;
constexpr int kFewStageThreads = 512;

// n / divisor for n * divisor < 2^32, by one product.
struct Divider {
  uint32_t divisor, factor;

  static Divider by(int divisor) {
    const auto d = static_cast<uint32_t>(divisor);
    return {d, d > 1 ? 0xffffffffu / d + 1 : 0};
  }
#if defined(__CUDACC__)
  __device__ __forceinline__ int quotient(int n) const {
    return divisor > 1 ? static_cast<int>(__umulhi(static_cast<uint32_t>(n), factor)) : n;
  }
#endif
};

// A stage with what follows from it. The gathered rows are those that the stage before hands on.
struct StagePlan {
  Stage stage;
  int words, steps, pitch;  // of packed rows
  int groups;               // of sixteen columns
  int byte_integers;        // whether the product's halves fit bytes
  int row_words, pieces;    // of a row handed on
  int gathered_words, gathered_pieces, gathered_bytes, gathered_odd, gathered_wide;
  int gathered_at_once;  // edges
  Divider by_groups, by_words, by_size, by_gathered_pieces;
  int4* table;  // rows handed on
};

// The whole launch. A block's shared memory is given in words; every part starts at a multiple of
// 16 bytes.
struct CooperativePlan {
  CooperativeArgs args;
  StagePlan stages[kMaxStages];
  int threads;      // of a block
  int share, more;  // rows of a block, and blocks with one more
  int slice_words;
  int image, slice, bits, floats, scales, rows, staged, barriers;  // offsets
  int float_pitch;        // words from one row of floats to the next
  int parts, part_words;  // how features come in: parts of rows,
  int slots, slot_bytes;  // so many of a warp at a time, where gathered rows go
  Divider by_parts;
  int element_bytes;
  uint32_t row_bytes;  // from one row of features to the next
  int words;           // of shared memory
};

}  // namespace bitgnn::cuda
