// Function tables of the ternary CPU kernels, one per instruction set.
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

struct TernaryTable {
  // Packs rows of `planes` planes; a boolean row packed to two planes has an empty neg.
  void (*pack)(const TernaryPackArgs&, int64_t planes, int64_t begin, int64_t end);
  // [begin, end) counts chunks of 32 features over all matrices.
  void (*pack_columns)(const TernaryColumnPackArgs&, int64_t begin, int64_t end);
  void (*multiply)(const TernaryProduct&, int64_t begin, int64_t end, int64_t panel_begin,
                   int64_t panel_end);
  void (*pair_panels)(const PairPanels&, int64_t begin, int64_t end);  // over all batches
  // [begin, end) counts tiles of kTernaryRows rows over all batches; no panels if x is boolean.
  void (*matmul)(const TernaryMatmulArgs&, const int32_t* panels, int64_t begin, int64_t end);
  // The same with the queries of all heads; `table` has args.table_entries() powers.
  void (*attend)(const TernaryAttentionArgs&, const int32_t* panels, const double* table,
                 int64_t begin, int64_t end);
};

extern const TernaryTable kPortableTernary;
#if defined(__x86_64__)
extern const TernaryTable kAvx2Ternary;
extern const TernaryTable kAvx512Ternary;
#endif

// The table of the instruction set in use.
const TernaryTable& ternary_kernels();

}  // namespace bitgnn::cpu
