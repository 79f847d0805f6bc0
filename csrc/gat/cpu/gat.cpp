// Graph attention on the CPU: tables of scores, and rows split over threads.
#include <vector>

#include "bspmm/cpu/balanced_rows.h"
#include "gat/cpu/scores.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kByteBits = 8;

// Sums of weights over the set bits of each value of a byte, by its lowest bit.
void fill_table(const int32_t* weights, int64_t first_bit, int64_t bits, uint32_t* table) {
  table[0] = 0;
  for (int64_t value = 1; value < kGatEntries; ++value) {
    const int64_t bit = __builtin_ctzll(static_cast<unsigned long long>(value));
    const bool inside = bit >= first_bit && bit < first_bit + bits;
    table[value] = table[value & (value - 1)] +
                   (inside ? static_cast<uint32_t>(weights[bit - first_bit]) : 0u);
  }
}

std::vector<GatPart> score_parts(const GatArgs& a) {
  const int64_t channels = a.width / a.heads;
  std::vector<GatPart> parts;
  for (int64_t head = 0; head < a.heads; ++head) {
    const int64_t end = (head + 1) * channels;
    for (int64_t k = head * channels; k < end;) {
      const int64_t byte = k / kByteBits, next = (byte + 1) * kByteBits;
      const int64_t bits = (next < end ? next : end) - k;
      parts.emplace_back();
      parts.back().byte = byte;
      parts.back().head = head;
      fill_table(a.alone + k, k % kByteBits, bits, parts.back().alone);
      fill_table(a.both + k, k % kByteBits, bits, parts.back().both);
      k += bits;
    }
  }
  return parts;
}

}  // namespace

void gat(const GatArgs& given) {
  GatPlan plan{};
  static_cast<GatArgs&>(plan) = given;
  std::vector<GatPart> parts;
  if (given.scores == GatScores::kPairs) parts = score_parts(given);
  plan.parts = parts.data();
  plan.num_parts = static_cast<int64_t>(parts.size());
  CsrArgs csr{};
  csr.rowptr = given.rowptr;
  csr.rowptr64 = given.rowptr64;
  split_balanced(csr, given.rows, kernels().gat, plan);
}

}  // namespace bitgnn::cpu
