// ADD and CONCAT on the CPU: element-wise joins of packed or float rows, bound by memory.
#include <algorithm>
#include <vector>

#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/backend.h"
#include "pack/arguments.h"
#include "pack/cpu/expand_bits.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kGrain = 1 << 18;  // features per thread

// Calls f(row, buffer) for every row, split over the threads; the buffer holds a row of floats.
template <class F>
void for_rows(int64_t rows, int64_t features, const F& f) {
  split(rows, grain(features, kGrain), [&](int64_t begin, int64_t end) {
    std::vector<float> buffer(static_cast<size_t>(features));
    for (int64_t i = begin; i < end; ++i) f(i, buffer.data());
  });
}

// Packs a row of floats into bits value >= threshold.
void pack_row(const float* row, int64_t size, const float* threshold, int32_t* out) {
  PackArgs args{};
  args.x = row;
  args.type = FloatType::kFloat32;
  args.row_stride = args.cols = size;
  args.threshold = threshold;
  args.words = out;
  kernels().pack(args, 0, 1);
}

float value_at(const float* scale, int64_t row) { return scale != nullptr ? scale[row] : 1.0f; }

// out = sum of the values of both rows.
void add_values(const JoinArgs& a, int64_t row, float* out) {
  const int64_t size = a.a_size, words = words_for(size);
  if (!a.packed) {
    for (int64_t k = 0; k < size; ++k)
      out[k] = a.a_float[row * size + k] + a.b_float[row * size + k];
    return;
  }
  expand_bits(a.a_bits + row * words, size, value_at(a.a_scale, row), out);
  for (int64_t w = 0; w < words; ++w) {
    const int64_t first = w * kWordBits, count = std::min(kWordBits, size - first);
    float other[kWordBits];
    expand_bits(a.b_bits + row * words + w, count, value_at(a.b_scale, row), other);
    for (int64_t l = 0; l < count; ++l) out[first + l] += other[l];
  }
}

// Appends b's bits to a's: each of b's words is shifted across two words of the result.
void concat_bits(const JoinArgs& a, int64_t row) {
  const int64_t words = words_for(a.a_size + a.b_size);
  const int64_t a_words = words_for(a.a_size), b_words = words_for(a.b_size);
  const int64_t first = a.a_size / kWordBits, shift = a.a_size % kWordBits;
  int32_t* out = a.out_bits + row * words;
  std::copy_n(a.a_bits + row * a_words, a_words, out);
  std::fill(out + a_words, out + words, 0);
  for (int64_t w = 0; w < b_words; ++w) {
    const uint64_t bits = static_cast<uint64_t>(static_cast<uint32_t>(a.b_bits[row * b_words + w]))
                          << shift;
    out[first + w] |= static_cast<int32_t>(static_cast<uint32_t>(bits));
    if (first + w + 1 < words)
      out[first + w + 1] |= static_cast<int32_t>(static_cast<uint32_t>(bits >> kWordBits));
  }
}

// out = a's values followed by b's.
void concat_values(const JoinArgs& a, int64_t row, float* out) {
  if (!a.packed) {
    std::copy_n(a.a_float + row * a.a_size, a.a_size, out);
    std::copy_n(a.b_float + row * a.b_size, a.b_size, out + a.a_size);
    return;
  }
  expand_bits(a.a_bits + row * words_for(a.a_size), a.a_size, value_at(a.a_scale, row), out);
  expand_bits(a.b_bits + row * words_for(a.b_size), a.b_size, value_at(a.b_scale, row),
              out + a.a_size);
}

}  // namespace

void add(const JoinArgs& a) {
  const int64_t size = a.a_size, words = words_for(size);
  const bool plain = a.packed && a.a_scale == nullptr && a.b_scale == nullptr &&
                     a.threshold == nullptr && a.out_bits != nullptr;
  for_rows(a.rows, size, [&](int64_t i, float* buffer) {
    if (plain) {  // x + y >= 0 unless both are -1
      for (int64_t w = i * words; w < (i + 1) * words; ++w)
        a.out_bits[w] = a.a_bits[w] | a.b_bits[w];
      return;
    }
    add_values(a, i, a.out_float != nullptr ? a.out_float + i * size : buffer);
    if (a.out_bits != nullptr) pack_row(buffer, size, a.threshold, a.out_bits + i * words);
  });
}

void concat(const JoinArgs& a) {
  const int64_t size = a.a_size + a.b_size;
  for_rows(a.rows, size, [&](int64_t i, float* buffer) {
    if (a.packed && a.out_bits != nullptr) return concat_bits(a, i);
    concat_values(a, i, a.out_float != nullptr ? a.out_float + i * size : buffer);
    if (a.out_bits != nullptr)
      pack_row(buffer, size, a.threshold, a.out_bits + i * words_for(size));
  });
}

}  // namespace bitgnn::cpu
