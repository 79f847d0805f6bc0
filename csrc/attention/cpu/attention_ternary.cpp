// CPU backend of batched products of ternary and boolean rows and of attention on bits.
#include <vector>

#include "attention/arguments.h"
#include "attention/softmax_table.h"
#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/backend.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kTileGrain = 1 << 16;   // word products per thread
constexpr int64_t kPanelGrain = 1 << 15;  // words per thread

int64_t tiles_of(int64_t rows) { return (rows + kTernaryRows - 1) / kTernaryRows; }

// See PairPanels.
Tensor pair_panels_of(const TernaryOperand& y, const int64_t (&batches)[2], int64_t rows,
                      int64_t size) {
  PairPanels p{&y, {batches[0], batches[1]}, rows, words_for(size), nullptr};
  const int64_t count = batches[0] * batches[1] * p.per_batch();
  const Tensor panels = Backend::empty({count, p.panel_words()}, ScalarType::Int);
  p.panels = panels.mutable_data_ptr<int32_t>();
  split(count, grain(p.panel_words(), kPanelGrain), kernels().pair_panels, p);
  return panels;
}

}  // namespace

void matmul_ternary(const TernaryMatmulArgs& a) {
  ops::OptionalTensor panels;
  const int32_t* words = nullptr;
  if (!a.boolean) {
    panels = pair_panels_of(a.y, a.batches, a.columns, a.size);
    words = panels->const_data_ptr<int32_t>();
  }
  const int64_t tiles = a.batches[0] * a.batches[1] * tiles_of(a.rows);
  split(tiles, grain(kTernaryRows * a.columns * (words_for(a.size) + 1), kTileGrain),
        kernels().matmul_ternary, a, words);
}

// Operands are packed first: they are small compared with the key products that all threads share.
void suits_floats(const TernaryFloatAttentionArgs&, bool* suits) { *suits = false; }
void attention_ternary_floats(const TernaryFloatAttentionArgs&) {}

void attention_ternary(const TernaryAttentionArgs& a) {
  std::vector<double> powers(static_cast<size_t>(a.table_entries()));
  softmax_table(a.scale, a.table_entries(), powers.data());
  const int64_t batches[2] = {a.batch, a.kv_heads};
  const Tensor panels = pair_panels_of(a.k, batches, a.keys, a.size);
  const auto* words = panels.const_data_ptr<int32_t>();
  const int64_t tiles = a.batch * a.heads * tiles_of(a.queries);
  split(tiles, grain(kTernaryRows * a.keys * (words_for(a.size) + 1), kTileGrain),
        kernels().attend_ternary, a, words, powers.data());
}

}  // namespace bitgnn::cpu
