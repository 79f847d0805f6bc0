// Plan of a cooperative launch, precomputed on the host so that no block has to derive it.
#pragma once

#include <cuda_runtime.h>

#include "whole_model/cooperative.h"

namespace bitgnn::cuda::whole_model {

// Threads per block: fewer if rows of features are so long that more warps would each have little
// in flight, and if features are packed, because then there are only short phases, which every
// further warp lengthens.
constexpr int kMostStageThreads = 768;
constexpr int kFewStageThreads = 512;

// Features are copied in aligned units of this many bytes: misaligned copies are about 20% slower.
// No allocation starts inside a unit.
constexpr uint32_t kCopyUnit = 64;

// n / divisor for n * divisor < 2^32, with one multiplication.
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

// A stage and the sizes derived from it. The gathered rows are those passed on by the previous
// stage.
struct StagePlan {
  Stage stage;
  int words, steps, pitch;  // of packed rows
  int groups;               // of sixteen columns
  int few_columns;          // whether the product uses single threads, not tensor cores
  int byte_integers;        // whether the product's halves fit in bytes
  int row_words, pieces;    // per row passed on
  int gathered_words, gathered_pieces, gathered_bytes, gathered_odd, gathered_wide;
  int gathered_at_once;  // edges
  Divider by_groups, by_out, by_words, by_gathered_pieces;
  int4* table;  // rows passed on
};

// The whole launch. Shared memory sizes and offsets are in words; every region is 16-byte aligned.
//
// Each cache line of kernel parameters adds latency, so the fields needed to request the features
// are adjacent.
struct CooperativePlan {
  int share, more;              // rows per block, and number of blocks with one more
  int feature_words, features;  // per row
  int parts, part_words;        // how features arrive: parts of rows,
  int slots, slot_bytes;        // and slots per warp, in the region of the gathered rows
  int staged, barriers;         // offsets
  Divider by_parts, by_words;   // by_words: of packed features
  int element_bytes;
  uint32_t row_bytes;      // from one row of features to the next
  const char* copied_end;  // end of the last 16-byte unit that holds only features
  CooperativeArgs args;
  int threads;  // per block
  int slice_words;
  int image, slice, bits, floats, scales, rows;  // offsets
  int float_pitch;                               // words from one row of floats to the next
  int words;                                     // of shared memory
  StagePlan stages[kMaxStages];
};

}  // namespace bitgnn::cuda::whole_model
