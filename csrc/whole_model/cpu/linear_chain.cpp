// A chain of fully connected layers on bits on the CPU: each row goes through all layers while it
// is in the L1 cache. For many rows, layer by layer is faster, because those products are blocked
// (see bmm/cpu/bmm.cpp).
#include <algorithm>
#include <vector>

#include "core/cpu/backend.h"
#include "whole_model/linear_chain.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kChainGrain = 1 << 14;  // words of weights per thread

int32_t count_bits(uint32_t v) {
  v -= v >> 1 & 0x55555555u;
  v = (v & 0x33333333u) + (v >> 2 & 0x33333333u);
  return static_cast<int32_t>(((v + (v >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24);
}

// 2 popc(row & weights) - |row|, where `ones` is |row|.
int32_t chain_product(const uint32_t* row, const int32_t* weights, int64_t words, int32_t ones) {
  int32_t shared = 0;
  for (int64_t w = 0; w < words; ++w)
    shared += count_bits(row[w] & static_cast<uint32_t>(weights[w]));
  return 2 * shared - ones;
}

void chain_row(const LinearChainArgs& a, int64_t number, std::vector<uint32_t>& row,
               std::vector<uint32_t>& next) {
  const int64_t first_words = words_for(a.layers[0].size);
  std::copy(a.x + number * first_words, a.x + (number + 1) * first_words, row.begin());
  for (int l = 0; l < a.count; ++l) {
    const ChainLayer& layer = a.layers[l];
    const int64_t words = words_for(layer.size), pitch = chain_words(layer.size);
    int32_t ones = 0;
    for (int64_t w = 0; w < words; ++w) ones += count_bits(row[w]);
    const int32_t* const weights = a.image + layer.weights;
    const int32_t* const table = a.image + layer.table;
    std::fill(next.begin(), next.end(), 0u);
    for (int64_t o = 0; o < layer.outputs; ++o) {
      const int32_t value = chain_product(row.data(), weights + o * pitch, words, ones);
      if (l + 1 < a.count) {
        const int32_t* const entry = table + o * kHiddenTable;
        const uint32_t bit = (value >= entry[0] ? 1u : 0u) ^ static_cast<uint32_t>(entry[1]);
        next[o / kWordBits] |= bit << o % kWordBits;
      } else {
        const int32_t* const entry = table + o * kLastTable;
        const auto* const factors = reinterpret_cast<const float*>(entry + 1);
        const float scaled = factors[0] * static_cast<float>(entry[0] + 2 * value);
        a.out[number * layer.outputs + o] = scaled + factors[1];
      }
    }
    std::swap(row, next);
  }
}

}  // namespace

void linear_chain(const LinearChainArgs& a) {
  int64_t widest = 0, work = 0;
  for (int l = 0; l < a.count; ++l) {
    const ChainLayer& layer = a.layers[l];
    widest = std::max({widest, words_for(layer.size), words_for(layer.outputs)});
    work += layer.outputs * words_for(layer.size);
  }
  split(a.rows, grain(work, kChainGrain), [&](int64_t begin, int64_t end) {
    std::vector<uint32_t> row(widest), next(widest);
    for (int64_t i = begin; i < end; ++i) chain_row(a, i, row, next);
  });
}

}  // namespace bitgnn::cpu
