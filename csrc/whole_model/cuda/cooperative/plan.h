// Everything about a cooperative launch that is known before it: no block works it out again.
#pragma once

#include <cuda_runtime.h>

#include "whole_model/cooperative.h"

namespace bitgnn::cuda::whole_model {

// Threads of a block: few where a row of features is so long that more warps would each have little
// of theirs on its way, and where features are packed, when short phases are all there is and every
// warp more lengthens them.
constexpr int kMostStageThreads = 768;
constexpr int kFewStageThreads = 512;

// Features are copied in units of so many bytes, from and to where these begin: copies of the same
// bytes from elsewhere take a fifth longer. No allocation begins inside of a unit.
constexpr uint32_t kCopyUnit = 64;

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
  int few_columns;          // whether threads multiply them alone
  int byte_integers;        // whether the product's halves fit bytes
  int row_words, pieces;    // of a row handed on
  int gathered_words, gathered_pieces, gathered_bytes, gathered_odd, gathered_wide;
  int gathered_at_once;  // edges
  Divider by_groups, by_out, by_words, by_gathered_pieces;
  int4* table;  // rows handed on
};

// The whole launch. A block's shared memory is given in words; every part starts at a multiple of
// 16 bytes.
//
// Every line of parameters takes a launch a while to see, so those that features are asked for with
// stand together.
struct CooperativePlan {
  int share, more;              // rows of a block, and blocks with one more
  int feature_words, features;  // of a row
  int parts, part_words;        // how features come in: parts of rows,
  int slots, slot_bytes;        // so many of a warp at a time, where gathered rows go
  int staged, barriers;         // offsets
  Divider by_parts, by_words;   // by_words: of packed features
  int element_bytes;
  uint32_t row_bytes;      // from one row of features to the next
  const char* copied_end;  // behind the last 16-byte unit of nothing but features
  CooperativeArgs args;
  int threads;  // of a block
  int slice_words;
  int image, slice, bits, floats, scales, rows;  // offsets
  int float_pitch;                               // words from one row of floats to the next
  int words;                                     // of shared memory
  StagePlan stages[kMaxStages];
};

}  // namespace bitgnn::cuda::whole_model
