// The CPU kernels of the ternary operators as one table of functions a capability.
#pragma once

#include <cstdint>

#include "attention/arguments.h"
#include "ternary/arguments.h"

namespace bitgnn::cpu {

constexpr int64_t kTernaryRows = 4;  // of a tile of products, and of queries attended together

// A product of ternary rows and what its weights were made into.
struct TernaryProduct {
  const TernaryBmmArgs* args;
  const int32_t* panels;  // [ceil(out_features / 32), words, 32], or null: weights as they are
  const int32_t* flip;    // bits [words_for(out_features)] or null
};

// Rows of y as panels [batches, ceil(rows / 32), words, 2, 32]: of each word the set bits of both
// planes, then those of pos.
struct PairPanels {
  const TernaryOperand* y;
  int64_t batches[2];
  int64_t rows;
  int64_t words;
  int32_t* panels;

  int64_t per_batch() const { return words_for(rows); }
  int64_t panel_words() const { return words * 2 * kWordBits; }
};

struct TernaryTable {
  // Rows of so many planes; boolean rows of two have an empty neg.
  void (*pack)(const TernaryPackArgs&, int64_t planes, int64_t begin, int64_t end);
  // Matrices times chunks of 32 features.
  void (*pack_columns)(const TernaryColumnPackArgs&, int64_t begin, int64_t end);
  void (*multiply)(const TernaryProduct&, int64_t begin, int64_t end, int64_t panel_begin,
                   int64_t panel_end);
  void (*pair_panels)(const PairPanels&, int64_t begin, int64_t end);  // panels of all batches
  // Tiles of kTernaryRows rows of all batches; panels of y, or null where x is boolean.
  void (*matmul)(const TernaryMatmulArgs&, const int32_t* panels, int64_t begin, int64_t end);
  // The same of queries of all heads; table of args.table_entries() powers.
  void (*attend)(const TernaryAttentionArgs&, const int32_t* panels, const double* table,
                 int64_t begin, int64_t end);
};

extern const TernaryTable kPortableTernary;
#if defined(__x86_64__)
extern const TernaryTable kAvx2Ternary;
extern const TernaryTable kAvx512Ternary;
#endif

// The table of the capability in use.
const TernaryTable& ternary_kernels();

}  // namespace bitgnn::cpu
