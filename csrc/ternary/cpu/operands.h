// Operands of the ternary CPU kernels besides the operators' arguments.
#pragma once

#include <cstdint>

#include "attention/arguments.h"
#include "ternary/arguments.h"

namespace bitgnn::cpu {

constexpr int64_t kTernaryRows = 4;  // rows per tile of products; queries attended together

// A product of ternary rows with its preprocessed weights.
struct TernaryProduct {
  const TernaryBmmArgs* args;
  const int32_t* panels;  // [ceil(out_features / 32), words, 32], or null to read a.w in place
  const int32_t* flip;    // bits [words_for(out_features)] or null
};

// Rows of y rearranged into panels [batches, ceil(rows / 32), words, 2, 32], which hold pos | neg
// and then pos of each word.
struct PairPanels {
  const TernaryOperand* y;
  int64_t batches[2];
  int64_t rows;
  int64_t words;
  int32_t* panels;

  int64_t per_batch() const { return words_for(rows); }
  int64_t panel_words() const { return words * 2 * kWordBits; }
};

}  // namespace bitgnn::cpu
