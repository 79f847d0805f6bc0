// CPU kernels as one function table per capability; arguments are plain pointers and sizes.
#pragma once

#include <cstdint>

#include "conv/arguments.h"
#include "first_layers/arguments.h"
#include "gat/cpu/scores.h"
#include "hamming/arguments.h"
#include "hamming/cpu/nearest.h"
#include "int8/arguments.h"
#include "pairs/arguments.h"
#include "ternary/cpu/operands.h"

namespace bitgnn::cpu {

constexpr int64_t kFewOutputs = 8;  // outputs whose products fit in the 64-bit lanes of a vector

// Binary products stored as halves dot >> 1, so that a neighbour is gathered in one piece. A row is
// its float factor followed by integers of one or two bytes, with room for whole vectors of 16.
// With few features, a row is 4 or 8 words instead: the halves, as floats if rows have factors, and
// the factor in the last word.
struct NarrowRows {
  char* data;          // [rows, stride]
  int64_t stride;      // bytes
  int64_t half_bytes;  // 1, 2, or 4 for a row of words
  bool has_factors;
  bool odd;   // dot = 2 half + 1
  bool ones;  // integers with factors are followed by a half of 1, to sum the factors

  int64_t halves_at() const {
    return has_factors && half_bytes < 4 ? static_cast<int64_t>(sizeof(float)) : 0;
  }
};

// A binary product with its weights as they are, or rearranged in one of two ways.
struct BmmArgs : bitgnn::BmmArgs {
  bool in_place;                 // reads w itself
  const int32_t* panels;         // from pack_panels: [ceil(out / 32), words, 32]
  const uint64_t* few_panel;     // [ceil(words / 2), kFewOutputs] of few outputs, or null
  bool parities;                 // panels are running parities, see bmm/cpu/bmm_kernel.h
  const int32_t* flip_bits;      // `flip` as [words_for(out)] or null
  const NarrowRows* out_narrow;  // in place of outputs: scales go into the factors, no epilogue
  const float* narrow_factor;    // [rows] or null; multiplies the scale
};

// A product of 8-bit rows with its weights rearranged.
struct Int8BmmArgs : bitgnn::Int8BmmArgs {
  const char* panels;        // from code_panels, or null: reads `weight` itself
  const int32_t* flip_bits;  // `flip` as [words_for(out)] or null
};

// An aggregation and what the kernels derive from it.
struct CsrArgs : AggregateArgs {
  int64_t x_bytes;  // size of the table of x
  bool prefetch;    // x exceeds a core's own cache
  bool stream;      // write floats with streaming stores: the output exceeds the caches

  int64_t row_begin(int64_t row) const {
    return rowptr64 ? static_cast<const int64_t*>(rowptr)[row]
                    : static_cast<const int32_t*>(rowptr)[row];
  }
  const int32_t* x_bits() const { return static_cast<const int32_t*>(x); }
  const float* x_float() const { return static_cast<const float*>(x); }
};

// Sums over the entries of a sparse matrix in place of those over a pattern.
struct EntriesArgs {
  const void* indices;  // [entries]
  bool indices64;       // int64, else int32
  const void* values;   // [entries]
  FloatType type;
  const float* entry_threshold;  // [cols] or null (0); what the entries of a place must add up to
  bool is_uniform;               // all columns have the same threshold
  CsrArgs sums;                  // of all rows, without indices
};

// Tiles of a pattern; see bitgnn::FrdcArgs.
struct FrdcArgs {
  CsrArgs csr;
  const int16_t* tiles;
};

// Sums of narrow rows: v = (row_scale * out_scale) * (sum of factor * dot), with a shift
// + (row_scale * shift) * (sum of factor), + bias. Float sums use the order of
// bspmm/narrow_sums.h; without factors they are exact integers, which wrap.
struct NarrowCsrArgs {
  CsrArgs csr;  // writes out_float; its x and thresholds are unused
  NarrowRows rows;
  const float* out_scale;  // [features] or null
  const float* shift;      // [features] or null
};

// Sums of narrow float rows in slots; see bitgnn::SlotSumsArgs.
struct SlotCsrArgs {
  CsrArgs csr;
  const float* addend;  // [rows, features] or null
  int64_t addend_stride;
};

// Look-up tables of bits_linear: 16 sign patterns of four features, for groups of 16 outputs with
// two integers each.
constexpr int64_t kLinearParts = kWordBits / 4;
constexpr int64_t kLinearEntries = 16;
constexpr int64_t kLinearOutputs = 16;
constexpr int64_t kLinearTableLanes = 2 * kLinearOutputs;

constexpr int64_t linear_groups(int64_t outputs) {
  return (outputs + kLinearOutputs - 1) / kLinearOutputs;
}

// Convolution as products of the words under the kernel window with weight panels.
struct ConvPanels {
  const bitgnn::ConvArgs* conv;  // each group's channels in x start at a word boundary
  // From pack_panels: [groups, ceil(outputs of a group / 32), words of all taps, 32].
  int32_t* panels;
  int64_t size;         // weights per output
  bool parities;        // finish_panels makes running parities, see bmm/cpu/bmm_kernel.h
  int32_t* outside;     // [panels, taps, 32] for taps outside the image, null if there are none
  const int32_t* flip;  // [panels] bits or null; replaces the flip of `conv`
  const bitgnn::ConvAddArgs* add;  // replaces the outputs of `conv`, or null
  float step;                      // of the products
};

// Two weights of an output, each as a word of a panel and a bit in it; the second may be missing.
struct SignPair {
  int64_t first, second;
  int first_bit, second_bit;
  bool has_second;
};

// Weights of a first layer, and the positions of the runs of numbers under its kernel window.
struct FixedPanels {
  ConvPanels outputs;      // epilogue of the products; has no weights
  const int16_t* weights;  // [panels, runs, pairs, 32, 2]
  const int64_t* run_at;   // [runs] offsets from the window's first number
  int64_t runs;
  int64_t pairs;      // pairs of numbers per run
  bool planar;        // a padded row is channel after channel, else pixel after pixel
  int64_t pitch;      // numbers in a padded row
  int64_t step;       // numbers between windows
  int64_t band_rows;  // output rows whose image fits in a core's own cache
};

constexpr int64_t kImageBlock = 128;  // pixels packed at a time

struct KernelTable {
  const char* name;
  int64_t parity_words;  // rows of at least this many words are faster as running parities
  void (*pack)(const PackArgs&, int64_t begin, int64_t end);
  // Panels [begin, end) of weights [out_features, words], see panels.h.
  void (*pack_panels)(const int32_t* w, int64_t out_features, int64_t words, bool parities,
                      int32_t* to, int64_t begin, int64_t end);
  void (*bmm)(const BmmArgs&, int64_t begin, int64_t end, int64_t panel_begin, int64_t panel_end);
  int64_t (*code_panel_bytes)(int64_t pitch);
  void (*pack_int8)(const Int8PackArgs&, int64_t begin, int64_t end);
  // Panels [begin, end) of weights [out_features, pitch], of code_panel_bytes(pitch) bytes each.
  void (*code_panels)(const int8_t* weight, int64_t out_features, int64_t pitch, char* to,
                      int64_t begin, int64_t end);
  void (*multiply_int8)(const Int8BmmArgs&, int64_t begin, int64_t end, int64_t panel_begin,
                        int64_t panel_end);
  void (*aggregate_bits)(const CsrArgs&, int64_t begin, int64_t end);
  // Ternary rows: pos in the first half of a row of x, neg in the second.
  void (*aggregate_ternary)(const CsrArgs&, int64_t begin, int64_t end);
  void (*aggregate_float)(const CsrArgs&, int64_t begin, int64_t end);
  void (*aggregate_frdc)(const FrdcArgs&, int64_t begin, int64_t end);
  void (*pack_standardized)(const StandardizedPackArgs&, int64_t begin, int64_t end);
  void (*aggregate_narrow)(const NarrowCsrArgs&, int64_t begin, int64_t end);
  void (*bits_linear)(const BitsLinearArgs&, const int32_t* tables, int64_t begin, int64_t end);
  void (*aggregate_slots)(const SlotCsrArgs&, int64_t begin, int64_t end);
  // finish_panels fills `outside` and makes the parities. conv takes ranges of output pixels and
  // panels, pack_images of blocks of kImageBlock pixels of one image.
  void (*finish_panels)(const ConvPanels&, int64_t begin, int64_t end);
  void (*conv)(const ConvPanels&, int64_t begin, int64_t end, int64_t panel_begin,
               int64_t panel_end);
  // Expands pairs of weights in panels of `panel_words` words to int16 signs [panels, count, 32,
  // 2].
  void (*expand_signs)(const int32_t* panels, int64_t panel_words, const SignPair* pairs,
                       int64_t count, int16_t* to, int64_t begin, int64_t end);
  // Takes ranges of bands of FixedPanels::band_rows output rows, and of panels.
  void (*fixed_conv)(const FixedConvArgs&, const FixedPanels&, int64_t begin, int64_t end,
                     int64_t panel_begin, int64_t panel_end);
  void (*pack_images)(const ImagePackArgs&, int64_t begin, int64_t end);
  void (*pool_bits)(const BitPoolArgs&, int64_t begin, int64_t end);  // output rows
  // Takes a range of output rows; see the kernel for the contents of the scratch.
  void (*pack_patches)(const PatchArgs&, uint32_t* scratch, int64_t* held, int64_t begin,
                       int64_t end);
  // Packs rows of `planes` planes; a boolean row packed to two planes has an empty neg.
  void (*pack_ternary)(const TernaryPackArgs&, int64_t planes, int64_t begin, int64_t end);
  // [begin, end) counts chunks of 32 features over all matrices.
  void (*pack_ternary_columns)(const TernaryColumnPackArgs&, int64_t begin, int64_t end);
  void (*multiply_ternary)(const TernaryProduct&, int64_t begin, int64_t end, int64_t panel_begin,
                           int64_t panel_end);
  void (*pair_panels)(const PairPanels&, int64_t begin, int64_t end);  // over all batches
  // [begin, end) counts tiles of kTernaryRows rows over all batches; no panels if x is boolean.
  void (*matmul_ternary)(const TernaryMatmulArgs&, const int32_t* panels, int64_t begin,
                         int64_t end);
  // The same with the queries of all heads; `table` has args.table_entries() powers.
  void (*attend_ternary)(const TernaryAttentionArgs&, const int32_t* panels, const double* table,
                         int64_t begin, int64_t end);
  // Adds codes [begin, end) to the nearest of queries [query_begin, query_end).
  void (*scan_codes)(const HammingArgs&, Nearest* nearest, int64_t query_begin, int64_t query_end,
                     int64_t begin, int64_t end);
  void (*gat)(const GatPlan&, int64_t begin, int64_t end);
  // False if a column lies outside of the matrix.
  bool (*aggregate_entries)(const EntriesArgs&, int64_t begin, int64_t end);
};

extern const KernelTable kPortableKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAmxKernels;
#endif

// The table in use: the best that the CPU supports, or the one that BITGNN_CPU_CAPABILITY names.
const KernelTable& kernels();

}  // namespace bitgnn::cpu
