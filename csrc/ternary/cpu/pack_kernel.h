// Ternary and boolean packing: two comparisons per value; bound by reading the input.
// Included once per instruction set; BITGNN_ISA names the namespace of its primitives.

#include "ternary/cpu/operands.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

template <class T>
inline Lanes load_up_to(const T* x, int64_t count) {
  if (count == kWordBits) return load_values(x);
  T buffer[kWordBits] = {};
  std::memcpy(buffer, x, static_cast<size_t>(count) * sizeof(T));
  return load_values(buffer);
}

inline int32_t set_bits(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(popcount(a) + popcount(b));
}

// Packs one row of floats into its planes and returns their number of set bits.
template <class T, bool kBoolean>
inline int32_t pack_row(const T* x, int64_t size, float half, int32_t* pos) {
  const Lanes above = broadcast_lanes(half), below = broadcast_lanes(-half);
  int32_t* const neg = pos + words_for(size);
  int32_t held = 0;
  for (int64_t w = 0; w < words_for(size); ++w) {
    const int64_t count = std::min(kWordBits, size - w * kWordBits);
    const uint32_t valid = count < kWordBits ? (1u << count) - 1u : 0xffffffffu;
    const Lanes value = load_up_to(x + w * kWordBits, count);
    const uint32_t plus = ge_mask(value, above) & valid;
    uint32_t minus = 0;
    if constexpr (!kBoolean) {
      minus = lt_mask(value, below) & valid;
      neg[w] = static_cast<int32_t>(minus);
    }
    pos[w] = static_cast<int32_t>(plus);
    held += set_bits(plus, minus);
  }
  return held;
}

template <class T, bool kBoolean>
void pack_ternary_rows(const TernaryPackArgs& a, int64_t planes, int64_t begin, int64_t end) {
  const float half = 0.5f * *a.scale;
  const int64_t words = words_for(a.size);
  for (int64_t r = begin; r < end; ++r) {
    const int64_t rest = r / a.sizes[2];
    const T* x = static_cast<const T*>(a.x) + rest / a.sizes[1] * a.strides[0] +
                 rest % a.sizes[1] * a.strides[1] + r % a.sizes[2] * a.strides[2];
    int32_t* const to = a.words + r * planes * words;
    a.counts[r] = pack_row<T, kBoolean>(x, a.size, half, to);
    if (kBoolean && planes > 1) std::fill(to + words, to + 2 * words, 0);
  }
}

void pack_ternary(const TernaryPackArgs& a, int64_t planes, int64_t begin, int64_t end) {
  with_type_of<float, Half, BFloat16>(a.type, [&](auto zero) {
    a.boolean ? pack_ternary_rows<decltype(zero), true>(a, planes, begin, end)
              : pack_ternary_rows<decltype(zero), false>(a, planes, begin, end);
  });
}

// Transposes 32 words of 32 bits: bit l of word d comes from bit d of word l.
inline void transpose_words(uint32_t (&m)[kWordBits]) {
  uint32_t mask = 0x0000ffffu;
  for (int width = 16; width > 0; width /= 2, mask ^= mask << width) {
    for (int k = 0; k < 32; k = (k + width + 1) & ~width) {
      const uint32_t swapped = (m[k] >> width ^ m[k + width]) & mask;
      m[k] ^= swapped << width;
      m[k + width] ^= swapped;
    }
  }
}

// Packs up to 32 features of one matrix: 32 rows at a time are packed and transposed.
template <class T>
void pack_feature_chunk(const TernaryColumnPackArgs& a, int64_t matrix, int64_t chunk) {
  const float half = 0.5f * *a.scale;
  const Lanes above = broadcast_lanes(half), below = broadcast_lanes(-half);
  const int64_t first = chunk * kWordBits, words = words_for(a.length);
  const int64_t features = std::min(kWordBits, a.features - first);
  const T* x = static_cast<const T*>(a.x) + matrix / a.batches[1] * a.batch_strides[0] +
               matrix % a.batches[1] * a.batch_strides[1] + first;
  int32_t* out = a.words + (matrix * a.features + first) * 2 * words;
  int32_t held[kWordBits] = {};
  for (int64_t w = 0; w < words; ++w) {
    uint32_t pos[kWordBits] = {}, neg[kWordBits] = {};
    const int64_t rows = std::min(kWordBits, a.length - w * kWordBits);
    for (int64_t l = 0; l < rows; ++l) {
      const Lanes value = load_up_to(x + (w * kWordBits + l) * a.row_stride, features);
      pos[l] = ge_mask(value, above);
      neg[l] = lt_mask(value, below);
    }
    transpose_words(pos);
    transpose_words(neg);
    for (int64_t d = 0; d < features; ++d) {
      out[d * 2 * words + w] = static_cast<int32_t>(pos[d]);
      out[(d * 2 + 1) * words + w] = static_cast<int32_t>(neg[d]);
      held[d] += set_bits(pos[d], neg[d]);
    }
  }
  std::memcpy(a.counts + matrix * a.features + first, held,
              static_cast<size_t>(features) * sizeof(int32_t));
}

void pack_ternary_columns(const TernaryColumnPackArgs& a, int64_t begin, int64_t end) {
  const int64_t chunks = words_for(a.features);
  with_type_of<float, Half, BFloat16>(a.type, [&](auto zero) {
    for (int64_t i = begin; i < end; ++i)
      pack_feature_chunk<decltype(zero)>(a, i / chunks, i % chunks);
  });
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
