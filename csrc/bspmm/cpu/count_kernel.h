// Bit-sliced neighbour counts: the number of neighbours with each feature's bit set, as bit planes.
// Carry-save addition (Harley-Seal): eight neighbours take seven full adders of two operations each
// for all features of a vector at once. Carries beyond weight 4 wait in pairs, as in a binary
// counter, so a neighbour costs two operations whatever the degree. Included once per CPU
// capability; BITGNN_ISA names the namespace of its primitives.

#include "capabilities/cpu/kernel_table.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

constexpr int kMaxPlanes = 34;         // degrees below 2^31, plus room for the carries above
constexpr int kFirstPendingLevel = 3;  // a block of eight neighbours carries into weight 8

inline int bit_length(uint64_t x) { return x == 0 ? 0 : 64 - __builtin_clzll(x); }

template <class B>
inline B full_add(B& sum, const B& x, const B& y) {
  const B carry = B::carry(sum, x, y);
  sum = B::sum(sum, x, y);
  return carry;
}

// The packed rows that an adjacency row refers to: `table + index * stride` for its indices.
struct Neighbours {
  const int32_t* indices;
  const int32_t* table;
  int64_t stride;

  const int32_t* row(int64_t edge) const {
    return table + static_cast<int64_t>(indices[edge]) * stride;
  }
};

constexpr int64_t kFewEdges = 7;  // what three planes can count
constexpr int kFewPlanes = 3;

// Same as count_bits for 1 to 7 edges, but without a branch on their number: many graphs have
// low-degree rows in an order that no branch predictor can foresee.
template <class B>
inline void count_few_bits(const Neighbours& n, typename B::Tail tail, int64_t begin,
                           int64_t degree, B* planes) {
  static const int32_t kZeros[16] = {};
  const auto x = [&](int k) {
    const int32_t* p = n.row(begin + (k < degree ? k : 0));
    return B::load(k < degree ? p : kZeros, tail);
  };
  B a = B::load(n.row(begin), tail), b = x(1);
  const B carry_a = full_add(a, x(2), x(3));
  const B carry_b = full_add(b, x(4), x(5));
  planes[1] = full_add(a, b, x(6));
  planes[0] = a;
  planes[2] = full_add(planes[1], carry_a, carry_b);
}

// Stores bit p of every count over edges [begin, end) in planes[p] and returns the number of
// planes, the bit length of the degree. Rows of edges below `prefetch_end` are prefetched.
template <class B>
BITGNN_INLINE int count_bits(const Neighbours& n, typename B::Tail tail, int64_t begin, int64_t end,
                             int64_t prefetch_end, B* planes) {
  static const int32_t kZeros[16] = {};
  constexpr int64_t kAhead = 24;
  const int64_t degree = end - begin;
  const int count = bit_length(static_cast<uint64_t>(degree));
  if (degree == 0) return 0;
  B pending[kMaxPlanes];
  B ones = B::zero(), twos = B::zero(), fours = B::zero();
  for (int p = kFirstPendingLevel; p < count; ++p) {
    planes[p] = B::zero();
    asm volatile("" : "+m"(planes[p]));  // keeps GCC from using a string instruction, 100 cycles
  }
  uint64_t blocks = 0;
  int64_t e = begin;
  for (; e + 8 <= end; e += 8, ++blocks) {
    if (e + 8 + kAhead <= prefetch_end)
      for (int k = 0; k < 8; ++k) prefetch(n.row(e + kAhead + k));
    const auto x = [&](int k) { return B::load(n.row(e + k), tail); };
    const B t0 = full_add(ones, x(0), x(1));
    const B t1 = full_add(ones, x(2), x(3));
    const B t2 = full_add(ones, x(4), x(5));
    const B t3 = full_add(ones, x(6), x(7));
    const B f0 = full_add(twos, t0, t1);
    const B f1 = full_add(twos, t2, t3);
    B carry = full_add(fours, f0, f1);
    int level = kFirstPendingLevel;
    for (uint64_t b = blocks; b & 1; b >>= 1, ++level)
      carry = full_add(planes[level], pending[level], carry);
    pending[level] = carry;
  }
  // Up to seven are left; missing ones read as zero, which is cheaper than a mispredicted branch.
  const int64_t rest = end - e;
  const auto x = [&](int k) {
    const int32_t* p = n.row(k < rest ? e + k : end - 1);
    return B::load(k < rest ? p : kZeros, tail);
  };
  const B t0 = full_add(ones, x(0), x(1));
  B carry, rest_ones = B::zero(), rest_twos = B::zero(), rest_fours;
  if (rest > 2) {
    const B t1 = full_add(ones, x(2), x(3));
    rest_fours = full_add(twos, t0, t1);
    rest_twos = full_add(ones, x(4), x(5));
    rest_ones = x(6);
  } else {
    rest_fours = B::zero();
    rest_twos = t0;
  }
  carry = ones & rest_ones;
  planes[0] = ones ^ rest_ones;
  carry = full_add(twos, rest_twos, carry);
  planes[1] = twos;
  carry = full_add(fours, rest_fours, carry);
  planes[2] = fours;
  for (int p = kFirstPendingLevel; p < count; ++p, blocks >>= 1)
    carry = full_add(planes[p], blocks & 1 ? pending[p] : B::zero(), carry);
  return count;
}

// Bits of count >= bound by a bit-sliced comparison from the lowest plane up: the majority of
// (plane, result so far, not bound) is an AND where the bound's bit is set, an OR where it is not.
template <class B>
inline B at_least(const B* planes, int count, uint64_t bound) {
  if (bit_length(bound) > count) return B::zero();
  B result = B::ones();
  for (int p = 0; p < count; ++p, bound >>= 1)
    result = B::carry(planes[p], result, bound & 1 ? B::zero() : B::ones());
  return result;
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
