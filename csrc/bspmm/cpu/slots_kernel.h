// Sums of narrow float rows over a pattern, in the order of bspmm/narrow_sums.h with factors of 1:
// the lanes are a row's features and the slots are registers. Bound by the gathers of rows.
// Included after bmm/cpu/bmm_kernel.h, once per CPU capability; BITGNN_ISA names the namespace of
// its primitives.

#include "bspmm/narrow_sums.h"
#include "capabilities/cpu/kernel_table.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// Slots of up to 16 features and of up to 32.
struct HalfSlot {
  static constexpr int64_t kFeatures = kWordBits / 2;
  using Value = HalfLanes;
  static Value zero() { return half_lanes(0.0f); }
  static Value load(const float* p, int64_t count) { return load_half(p, count); }
  static Lanes widened(const Value& v) { return widen(v); }
};
struct WholeSlot {
  static constexpr int64_t kFeatures = kWordBits;
  using Value = Lanes;
  static Value zero() { return zero_lanes(); }
  static Value load(const float* p, int64_t count) { return load_some(p, count); }
  static Lanes widened(const Value& v) { return v; }
};

// Sums features [first, first + count) of rows [begin, end).
template <class Slot>
void sum_slots(const SlotCsrArgs& a, int64_t first, int64_t count, int64_t begin, int64_t end) {
  using Value = typename Slot::Value;
  const CsrArgs& csr = a.csr;
  const float* x = csr.x_float() + first;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t last = csr.row_begin(row + 1);
    Value total = Slot::zero();
    for (int64_t at = csr.row_begin(row); at < last; at += kSumPiece) {
      const int64_t piece_end = last - at < kSumPiece ? last : at + kSumPiece;
      Value slots[kSumSlots];
      for (Value& slot : slots) slot = Slot::zero();
      int64_t e = at;
      for (; e + kSumSlots <= piece_end; e += kSumSlots)
#pragma GCC unroll 8
        for (int s = 0; s < kSumSlots; ++s)
          slots[s] = add(slots[s], Slot::load(x + csr.indices[e + s] * csr.x_stride, count));
      for (int s = 0; e < piece_end; ++e, ++s)
        slots[s] = add(slots[s], Slot::load(x + csr.indices[e] * csr.x_stride, count));
#pragma GCC unroll 3
      for (int half = kSumSlots / 2; half > 0; half /= 2)
#pragma GCC unroll 4
        for (int s = 0; s < half; ++s) slots[s] = add(slots[s], slots[s + half]);
      total = add(total, slots[0]);
    }
    Lanes v = Slot::widened(total);
    if (csr.row_scale != nullptr) v = mul(broadcast_lanes(csr.row_scale[row]), v);
    if (csr.bias != nullptr) v = add(v, load_some(csr.bias + first, count));
    if (a.addend != nullptr) v = add(v, load_some(a.addend + row * a.addend_stride + first, count));
    store_some(csr.out_float + row * csr.features + first, v, count);
  }
}

void aggregate_slots(const SlotCsrArgs& a, int64_t begin, int64_t end) {
  for (int64_t first = 0; first < a.csr.features;) {
    const int64_t left = a.csr.features - first;
    if (left <= HalfSlot::kFeatures) {
      sum_slots<HalfSlot>(a, first, left, begin, end);
      return;
    }
    const int64_t count = left < WholeSlot::kFeatures ? left : WholeSlot::kFeatures;
    sum_slots<WholeSlot>(a, first, count, begin, end);
    first += count;
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
